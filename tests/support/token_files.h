// Token files as nanoGPT and llm.c write them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

inline std::string token_bytes(const std::vector<std::uint16_t>& tokens) {
  std::string bytes;
  for (const std::uint16_t token : tokens)
    bytes += {static_cast<char>(token), static_cast<char>(token >> 8)};
  return bytes;
}

inline std::string llm_c_header(std::uint32_t magic, std::uint32_t version, std::uint32_t count) {
  std::string header(1024, '\0');
  std::size_t position = 0;
  for (const std::uint32_t word : {magic, version, count}) {
    for (int shift = 0; shift < 32; shift += 8)
      header[position++] = static_cast<char>(word >> shift);
  }
  return header;
}
