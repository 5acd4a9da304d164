//! The memory of the stages: one value of each type.
//!
//! A stage asks for its own type, so the owner of all types names no stage.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

type Shared = Arc<dyn Any + Send + Sync>;

/// One value of each type that was asked for.
#[derive(Default)]
pub(crate) struct Memory(RwLock<HashMap<TypeId, Shared>>);

impl Memory {
    /// The value of this type; `make` makes it if it is missing.
    pub(crate) fn of<T: Send + Sync + 'static>(&self, make: impl FnOnce() -> T) -> Arc<T> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(&TypeId::of::<T>()).and_then(typed) {
            return known;
        }
        drop(known);
        let mut all = self.0.write().unwrap_or_else(PoisonError::into_inner);
        // Another may have made it meanwhile.
        if let Some(known) = all.get(&TypeId::of::<T>()).and_then(typed) {
            return known;
        }
        let made = Arc::new(make());
        all.insert(TypeId::of::<T>(), Arc::clone(&made) as Shared);
        made
    }
}

fn typed<T: Send + Sync + 'static>(value: &Shared) -> Option<Arc<T>> {
    Arc::clone(value).downcast().ok()
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[test]
    fn each_type_has_one_value_that_everybody_shares() {
        let memory = Memory::default();
        *memory.of(Mutex::<u8>::default).lock().expect("sound") = 7;
        memory.of(|| Mutex::new("a word"));
        let shared = memory.of(|| Mutex::new(0_u8));
        assert_eq!(*shared.lock().expect("sound"), 7);
        assert_eq!(
            *memory.of(|| Mutex::new("")).lock().expect("sound"),
            "a word"
        );
    }
}
