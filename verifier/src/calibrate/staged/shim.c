// A library that stands before the driver's, as those seen in the wild do: whoever asks for a function
// of the driver by its name may get another one. This one halves times and adds a quarter to memory.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

#ifdef __aarch64__
#define OLDEST "GLIBC_2.17"
#else
#define OLDEST "GLIBC_2.2.5"
#endif

typedef void *(*Lookup)(void *, const char *);
typedef int (*Elapsed)(float *, void *, void *);
// The version of the structure, then total, reserved, free and used bytes.
typedef struct {
  unsigned version;
  unsigned long long total, reserved, free, used;
} Memory;
typedef int (*MemoryInfo)(void *, Memory *);

static Elapsed real_elapsed;
static MemoryInfo real_memory;

static int elapsed(float *ms, void *begin, void *end) {
  int answer = real_elapsed(ms, begin, end);
  *ms /= 2;
  return answer;
}

static int memory(void *device, Memory *info) {
  int answer = real_memory(device, info);
  info->total += info->total / 4;
  return answer;
}

void *dlsym(void *library, const char *name) {
  static Lookup lookup;
  if (lookup == 0) {
    lookup = (Lookup)dlvsym(RTLD_NEXT, "dlsym", OLDEST);
  }
  void *found = lookup(library, name);
  if (found != 0 && strcmp(name, "cuEventElapsedTime") == 0) {
    real_elapsed = (Elapsed)found;
    return (void *)elapsed;
  }
  if (found != 0 && strcmp(name, "nvmlDeviceGetMemoryInfo_v2") == 0) {
    real_memory = (MemoryInfo)found;
    return (void *)memory;
  }
  return found;
}
