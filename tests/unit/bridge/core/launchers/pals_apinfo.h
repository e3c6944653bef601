// The content of a file that PALS_APINFO names.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace torchbridge {

// The file as Flux's and Slurm's writers lay it out (version 1).
inline std::string apinfo(const std::vector<int>& node_of_rank,
                          const std::vector<std::string>& nodes) {
  struct {
    int version = 1;
    std::size_t total_size = 0;
    struct {
      std::size_t size, offset;
      int count;
    } profiles{}, commands{}, ranks{}, names{}, cards{};
  } header;
  static_assert(sizeof header == 136);
  header.ranks = {12, sizeof header, static_cast<int>(node_of_rank.size())};
  header.names = {68, header.ranks.offset + 12 * node_of_rank.size(),
                  static_cast<int>(nodes.size())};
  std::string content(reinterpret_cast<const char*>(&header), sizeof header);
  for (const int node : node_of_rank) {
    const int rank[3] = {0, 0, node};
    content.append(reinterpret_cast<const char*>(rank), sizeof rank);
  }
  for (const auto& name : nodes)
    content += std::string(4, '\0') + name + std::string(64 - name.size(), '\0');
  return content;
}

}  // namespace torchbridge
