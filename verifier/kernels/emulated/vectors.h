// The vectors that the kernels share with the reference: ../vectors.csv.
#pragma once
#include "grid.h"
#include "../philox.cuh"

#include <fstream>
#include <sstream>

// The rows of a kind, without it.
inline std::vector<std::vector<std::string>> vectors(const std::string &path,
                                                     const std::string &kind) {
  std::ifstream file(path);
  demand(file.good(), ("cannot read " + path).c_str());
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(file, line);) {
    std::istringstream cells(line);
    std::vector<std::string> row;
    for (std::string cell; std::getline(cells, cell, ',');) {
      row.push_back(cell);
    }
    if (!row.empty() && row[0] == kind) {
      rows.emplace_back(row.begin() + 1, row.end());
    }
  }
  demand(!rows.empty(), (path + " has no rows of " + kind).c_str());
  return rows;
}

inline u64 number(const std::string &cell) { return std::stoull(cell, nullptr, 0); }

// Four words of hexadecimal digits: key, then the upper counter half.
inline Stream stream(const std::string &cell) {
  auto word = [&cell](size_t at) { return (u32)std::stoul(cell.substr(8 * at, 8), nullptr, 16); };
  demand(cell.size() == 32, (cell + " is no stream").c_str());
  return {word(0), word(1), word(2), word(3)};
}
