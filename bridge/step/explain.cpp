#include "bridge/step/explain.h"

#include <algorithm>

#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/binding/cpu_set.h"

namespace torchbridge {
namespace {

constexpr int kShownRows = 64;  // of nodes that differ from their neighbours
constexpr int kDrawnNodes = 16;
constexpr int kDrawnRanks = 16;  // of one node

std::string text(int number) { return std::to_string(number); }
std::string or_dash(const std::string& value) { return value.empty() ? "-" : value; }

using Row = std::vector<std::string>;

std::string aligned(const std::vector<Row>& rows) {
  std::vector<std::size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string table;
  for (const Row& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i)
      line += " " + row[i] + std::string(widths[i] - row[i].size() + 1, ' ');
    line.erase(line.find_last_not_of(' ') + 1);
    table += line + "\n";
  }
  return table;
}

std::string node_name(const LaunchFacts& facts, int node) {
  return facts.nodes.empty() ? text(node) : facts.nodes[node];
}

std::string node_table(const LaunchFacts& facts, const TaskMap& map,
                       const std::vector<std::vector<int>>& ranks,
                       const std::vector<NodeFacts>& nodes) {
  std::vector<Row> rows = {{"node", "name", "ranks", "local", "GPUs", "CPUs", "interface"}};
  for (int first = 0; first < map.node_count();) {
    if (rows.size() > kShownRows) {
      rows.push_back({formatted("... and {} more", counted(map.node_count() - first, "node"))});
      break;
    }
    int last = first;
    const auto alike = [&](int node) {
      return map.tasks_on(node) == map.tasks_on(first) && nodes[node] == nodes[first];
    };
    while (last + 1 < map.node_count() && alike(last + 1)) ++last;
    const bool one = last == first;
    const int tasks = map.tasks_on(first);
    const std::string locals = tasks == 1 ? "0" : "0-" + text(tasks - 1);
    rows.push_back(
        {one ? text(first) : text(first) + "-" + text(last),
         one ? node_name(facts, first) : node_name(facts, first) + " .. " + node_name(facts, last),
         one ? or_dash(cpu_list_text(ranks[first])) : formatted("{} each", counted(tasks, "rank")),
         locals, or_dash(nodes[first].gpus), or_dash(nodes[first].cpus),
         or_dash(nodes[first].interface)});
    first = last + 1;
  }
  return aligned(rows);
}

std::string picture(const LaunchFacts& facts, const std::vector<std::vector<int>>& ranks) {
  std::vector<Row> rows;
  for (int node = 0; node < static_cast<int>(ranks.size()); ++node) {
    if (node == kDrawnNodes) {
      rows.push_back(
          {formatted("... and {} more", counted(static_cast<int>(ranks.size()) - node, "node"))});
      break;
    }
    std::string box = "[";
    for (std::size_t i = 0; i < ranks[node].size() && i < kDrawnRanks; ++i)
      box += " " + text(ranks[node][i]);
    rows.push_back(
        {node_name(facts, node), box + (ranks[node].size() > kDrawnRanks ? " ... ]" : " ]")});
  }
  return aligned(rows);
}

std::string why_address(const LaunchOptions& options, ExportedMaster exported) {
  if (exported.host) return "exported as MASTER_ADDR";
  if (options.addr.kind == AddressRule::Kind::kHost)
    return formatted("given as addr={}", options.addr.text);
  if (options.addr.kind == AddressRule::Kind::kInterface)
    return formatted("the address of rank 0's interface {}", options.addr.text);
  if (options.addr.kind == AddressRule::Kind::kSubnet)
    return formatted("rank 0's address in {}", options.addr.text);
  if (options.addr.kind == AddressRule::Kind::kSuffix)
    return formatted("the name of rank 0's node with {}", options.addr.text);
  return "rank 0's node";
}

std::string why_port(const LaunchFacts& facts, const LaunchOptions& options,
                     ExportedMaster exported) {
  if (exported.port) return "exported as MASTER_PORT";
  if (!options.port.automatic())
    return options.port.low == options.port.high ? "given as port=N" : "from the range port=LO-HI";
  if (facts.world_size == 1) return "any free port will do for one rank";
  if (!facts.reserved_ports.empty())
    return formatted("the first port that {} reserved for the step", facts.launcher);
  if (facts.step_id.empty()) return "selected on rank 0's node and sent to the other ranks";
  return "derived from job, step and restart; no port is reserved";
}

std::string why_gpus(GpuRule rule) {
  switch (rule) {
    case GpuRule::kAuto:
      return "as the launcher gave them";
    case GpuRule::kAll:
      return "each task sees all GPUs of the step on its node";
    case GpuRule::kVirtual:
      return "each task sees its own GPU as number 0";
    case GpuRule::kClosest:
      return "in the order of their distance from the tasks' CPUs";
    case GpuRule::kShare:
      return "each task sees one GPU, which several tasks may use";
    case GpuRule::kNone:
      break;
  }
  return "not changed";
}

const char* name_of(GpuRule rule) {
  constexpr const char* kNames[] = {"auto", "all", "virtual", "closest", "share", "none"};
  return kNames[static_cast<int>(rule)];
}

Row interface_row(const InterfaceRule& rule) {
  if (rule.kind == InterfaceRule::Kind::kNone)
    return {"interface", "none", "the variables are not set"};
  if (rule.kind == InterfaceRule::Kind::kName)
    return {"interface", rule.name, formatted("gloo's and NCCL's: iface={}", rule.name)};
  return {"interface", "auto", "gloo's, towards rank 0's node; a job on one node needs none"};
}

// One line for all nodes where it is too small, with the size of the first.
std::string small_memory_line(const LaunchFacts& facts, const std::vector<NodeFacts>& nodes,
                              std::string SmallMemory::*size, const char* before,
                              const char* after) {
  const auto is_small = [&](const NodeFacts& node) { return !(node.small.*size).empty(); };
  const auto first = std::ranges::find_if(nodes, is_small);
  if (first == nodes.end()) return {};
  const int others = static_cast<int>(std::count_if(first, nodes.end(), is_small)) - 1;
  return "\n  " + node_name(facts, static_cast<int>(first - nodes.begin())) +
         (others > 0 ? " and " + counted(others, "other node") : "") + ": " + before +
         first->small.*size + after + "\n";
}

// One text where all are equal.
std::string by_local_rank(const std::vector<NodeFacts>& tasks, std::string NodeFacts::*field) {
  const bool alike = std::ranges::all_of(
      tasks, [&](const NodeFacts& task) { return task.*field == tasks.front().*field; });
  std::string text;
  for (const NodeFacts& task : tasks) {
    text += (text.empty() ? "" : " / ") + or_dash(task.*field);
    if (alike) return task.*field;
  }
  return text;
}

}  // namespace

std::vector<std::vector<int>> ranks_by_node(const TaskMap& map, RankRule rule) {
  std::vector<std::vector<int>> ranks(map.node_count());
  if (rule == RankRule::kBlock) {
    int next = 0;
    for (int node = 0; node < map.node_count(); ++node) {
      for (int i = 0; i < map.tasks_on(node); ++i) ranks[node].push_back(next++);
    }
    return ranks;
  }
  for (int rank = 0; rank < map.world_size(); ++rank) {
    if (map.knows(rank)) ranks[map.node_of(rank)].push_back(rank);
  }
  return ranks;
}

NodeFacts NodeFacts::of_tasks(const std::vector<NodeFacts>& tasks) {
  NodeFacts node{by_local_rank(tasks, &NodeFacts::gpus), by_local_rank(tasks, &NodeFacts::cpus),
                 tasks.front().interface, tasks.front().small};
  for (const NodeFacts& task : tasks) node.gpus_of_rank.push_back(task.gpus);
  return node;
}

std::string NodeFacts::text() const {
  return gpus + "\t" + cpus + "\t" + interface + "\t" + small.shared + "\t" + small.locked;
}

NodeFacts NodeFacts::from(const std::string& line) {
  const auto parts = split_at(line, '\t');
  if (parts.size() != 5) return {};
  return {printable(parts[0]),
          printable(parts[1]),
          printable(parts[2]),
          {printable(parts[3]), printable(parts[4])}};
}

std::string layout_title(const LaunchFacts& facts, const TaskMap& map, const TorchEnv& env) {
  const std::string how = facts.launcher == "none"
                              ? "without a launcher"
                              : formatted("by {} as run {}", facts.launcher, env.run_id);
  return formatted("{} on {}, started {}", counted(map.world_size(), "rank"),
                   counted(map.node_count(), "node"), how);
}

std::string explain(const LaunchFacts& facts, const TaskMap& map, const LaunchOptions& options,
                    ExportedMaster exported, const TorchEnv& env,
                    const std::vector<NodeFacts>& nodes) {
  const auto ranks = ranks_by_node(map, options.ranks);
  const bool block = options.ranks == RankRule::kBlock;
  const std::string of_launcher = facts.launcher == "none" ? "0" : facts.launcher + "'s";
  std::string result = layout_title(facts, map, env) + "\n";
  result += aligned(
      {{"MASTER_ADDR", env.master.host, why_address(options, exported)},
       {"MASTER_PORT", text(env.master.port), why_port(facts, options, exported)},
       {"RANK", block ? "node by node" : of_launcher, block ? "ranks=block" : "the default"},
       {"GPUs", name_of(options.gpus), why_gpus(options.gpus)},
       {"CPUs", options.cpus == CpuRule::kGpu ? "gpu" : "keep",
        options.cpus == CpuRule::kGpu ? "those near each task's GPU"
                                      : "as the launcher bound the tasks"},
       interface_row(options.iface)});
  result += "\n" + node_table(facts, map, ranks, nodes) + "\n" + picture(facts, ranks);
  result += small_memory_line(
      facts, nodes, &SmallMemory::shared, "/dev/shm holds ",
      ", where gloo and NCCL share memory between the ranks of a node: start containers with "
      "--shm-size or --ipc=host");
  result += small_memory_line(
      facts, nodes, &SmallMemory::locked, "",
      " of memory may be locked, and NCCL locks its buffers for InfiniBand and RoCE: "
      "LimitMEMLOCK=infinity for slurmd or the container, and "
      "PropagateResourceLimitsExcept=MEMLOCK in slurm.conf");
  return result;
}

}  // namespace torchbridge
