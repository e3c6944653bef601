#include "bridge/launch/publish_store.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "bridge/base/hex_text.h"
#include "bridge/base/hmac_sha256.h"
#include "bridge/base/hostlist.h"
#include "bridge/base/message_text.h"
#include "bridge/base/take_until.h"
#include "bridge/core/launchers/mpirun_daemons.h"
#include "bridge/core/task_map.h"
#include "bridge/launch/launcher_exchange.h"
#include "bridge/net/address.h"
#include "bridge/net/random_token.h"

namespace torchbridge {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
constexpr const char* kNoStore = "none";  // instead of the store's address, where rank 0 has none

// What each rank publishes: "NODE ADDRESS PORT JOB TOKEN". Only rank 0 gives more than its node;
// the others send "- 0 - -".
struct RankRecord {
  std::string node;
  Endpoint store;
  std::string job, token;

  std::string text() const {
    const auto or_dash = [](const std::string& field) { return field.empty() ? "-" : field; };
    return node + " " + or_dash(store.host) + " " + std::to_string(store.port) + " " +
           or_dash(job) + " " + or_dash(token);
  }

  static Result<RankRecord> parse(const std::string& text) {
    std::vector<std::string> fields(1);
    for (const char c : text) {
      if (c == ' ') {
        fields.emplace_back();
      } else {
        fields.back() += c;
      }
    }
    const auto port = fields.size() == 5 ? parse_integer(fields[2], 0, 65535) : std::nullopt;
    if (!port)
      return Error{
          "a rank did not send 'NODE ADDRESS PORT JOB TOKEN': do all ranks run the same version?"};
    const auto field = [&](int i) { return fields[i] == "-" ? std::string() : fields[i]; };
    return RankRecord{fields[0], {field(1), static_cast<int>(*port)}, field(3), field(4)};
  }
};

// An id that no other process of this host has, now or later.
std::string unique_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) + "-" +
         std::to_string(getpid());
}

// The first port to try: it differs between processes, and follows the same rules as under
// launchers that give nodes.
Result<int> first_port(const LaunchOptions& options) {
  LaunchFacts seed;
  seed.job_id = unique_id();
  LaunchOptions rules = options;
  rules.addr = {AddressRule::Kind::kHost, kLoopback};
  const auto endpoint = endpoint_of(seed, TaskMap::block({1}), rules, ephemeral_ports());
  if (!endpoint) return endpoint.error();
  return endpoint->port;
}

Result<Socket> bind_to(const Endpoint& endpoint, StoreSocket kind) {
  if (kind == StoreSocket::kListening) return listen_on(endpoint);
  // The store of PyTorch listens on all interfaces, where another program may have the port.
  auto reserved = reserve(endpoint);
  if (reserved || port_is_free(endpoint.port)) return reserved;
  return Error{formatted(
      "MASTER_PORT={} is already in use on {}: choose another with MASTER_PORT=N, or end the "
      "program that uses it",
      endpoint.port, host_name())};
}

Result<std::string> address_for(bool one_node, const AddressRule& rule) {
  return one_node && rule.kind == AddressRule::Kind::kAuto ? Result<std::string>(kLoopback)
                                                           : own_address(rule);
}

// Numbers the nodes in the order of their lowest rank.
std::vector<int> number_nodes(const std::vector<RankRecord>& records) {
  std::map<std::string, int> numbers;
  std::vector<int> node_of_rank;
  for (const auto& record : records) {
    const auto [entry, is_new] = numbers.emplace(record.node, static_cast<int>(numbers.size()));
    node_of_rank.push_back(entry->second);
  }
  return node_of_rank;
}

// Ranks of one node, which share `token` where it is not empty.
BootstrapGroup group_on_node(const std::string& key, int rank, int size, const std::string& token) {
  return {.job = key,
          .secret = group_secret(token),
          .rank = rank,
          .size = size,
          .node_key = key,
          .local_rank = rank,
          .local_size = size};
}

// PMIx with a barrier of the node's ranks after PMIx_Finalize, before any of them continues to
// MPI_Init or another exchange: a fence that some ranks begin while others of the node still
// finalise hangs now and then (OpenMPI 4.1.4). PMIx gives rank 0's token, the secret of that
// barrier, to the ranks of this job alone.
class PmixWithNodeBarrier : public Exchange {
 public:
  PmixWithNodeBarrier(std::unique_ptr<Exchange> pmix, const LaunchFacts& facts)
      : pmix_(std::move(pmix)),
        node_key_(facts.node_key),
        local_rank_(facts.local_rank),
        local_size_(facts.local_size) {}

  Result<std::vector<std::string>> all_gather(const std::string& value,
                                              std::chrono::milliseconds timeout) override {
    auto values = pmix_->all_gather(random_token() + " " + value, timeout);
    pmix_.reset();
    if (!values) return values;
    std::string token;  // of rank 0, the last in this order
    for (auto own = values->rbegin(); own != values->rend(); ++own) {
      std::string_view rest = *own;
      token = take_until(rest, ' ');
      *own = std::string(rest);
    }
    if (node_key_.empty() || local_size_ == 1) return values;
    const auto left = torchbridge::all_gather(
        group_on_node(node_key_ + " left", local_rank_, local_size_, token), "left", timeout);
    if (!left) return left.error();
    return values;
  }

 private:
  std::unique_ptr<Exchange> pmix_;
  std::string node_key_;
  int local_rank_, local_size_;
};

// The same on all nodes, and not predictable without the secret. A range of ports that the user
// gave holds here too, as a firewall may allow only that range.
Result<std::vector<int>> listener_ports(const LaunchFacts& facts, const std::string& secret,
                                        const LaunchOptions& options) {
  constexpr int kPorts = 3;  // a listener takes the first that is free
  LaunchOptions rules;
  rules.addr = {AddressRule::Kind::kHost, kLoopback};
  if (options.port.low != options.port.high) rules.port = options.port;
  std::vector<int> ports;
  for (int i = 0; i < kPorts; ++i) {
    LaunchFacts seed;
    seed.job_id = hex_of(hmac_sha256(secret, facts.job_id + " port " + std::to_string(i)));
    const auto endpoint = endpoint_of(seed, TaskMap::block({1}), rules, PortRange{});
    if (!endpoint) return endpoint.error();
    ports.push_back(endpoint->port);
  }
  return ports;
}

// OpenMPI: the hosts of its daemons are known, or at least mpirun's. Rank 0's node listens.
// mpirun's host listens too if it holds ranks, because all nodes know it, while mpirun's host
// itself does not know the other nodes.
Result<std::unique_ptr<Exchange>> connect_by_daemons(const LaunchFacts& facts,
                                                     MpirunDaemons daemons,
                                                     const EnvMap& environment,
                                                     const LaunchOptions& options) {
  auto ports = listener_ports(facts, daemons.secret, options);
  if (!ports) return ports.error();
  if (daemons.nodes.empty()) {
    if (auto nodes = parse_hostlist(environment.get("SLURM_JOB_NODELIST").value_or("")))
      daemons.nodes = std::move(*nodes);
  }
  BootstrapGroup group{.job = facts.job_id,
                       .secret = daemons.secret,
                       .rank = facts.rank,
                       .size = facts.world_size,
                       .node_key = facts.node_key,
                       .local_rank = facts.local_rank,
                       .local_size = facts.local_size,
                       .listens = daemons.on_mpirun_host,
                       .listening_rank = 0,
                       .ports = std::move(*ports),
                       .needs_other_hosts = daemons.mpirun_host_is_idle};
  // Without a list of nodes and without ranks on mpirun's host the nodes cannot connect: do not
  // wait half of the timeout.
  constexpr std::chrono::seconds kWithoutList{3};
  const bool may_be_alone = daemons.nodes.empty() && !daemons.on_mpirun_host;
  if (may_be_alone) group.connect_timeout = kWithoutList;
  if (!daemons.on_mpirun_host) {
    // Such as docker0, which has the same address on each host.
    std::erase_if(daemons.mpirun_host, is_own_address);
    group.first_hosts = std::move(daemons.mpirun_host);
    group.other_hosts = std::move(daemons.nodes);
  }
  return make_group_exchange(std::move(group), [facts] { return connect_by_pmix(facts); });
}

}  // namespace

Result<std::unique_ptr<Exchange>> connect_by_pmix(const LaunchFacts& facts) {
  auto pmix = connect_pmix(facts.world_size);
  if (!pmix) return pmix.error();
  return std::unique_ptr<Exchange>(std::make_unique<PmixWithNodeBarrier>(std::move(*pmix), facts));
}

Result<StoreAddress> bind_store(bool one_node, const LaunchOptions& options, StoreSocket kind) {
  const auto host = address_for(one_node, options.addr);
  if (!host) return host.error();
  const auto first = first_port(options);
  if (!first) return first.error();
  constexpr int kTries = 64;
  const PortRule& rule = options.port;
  const int tries = rule.automatic() ? kTries : rule.high - rule.low + 1;
  Result<Socket> socket = Error{};
  for (int i = 0; i < tries; ++i) {
    const int port = rule.automatic() ? *first + i : rule.low + (*first - rule.low + i) % tries;
    socket = bind_to({*host, port}, kind);
    if (socket) return StoreAddress{{*host, port}, std::move(*socket)};
    // Of the address, or of the process: no other port mends it.
    if (i == 0 && !bind_to({*host, 0}, kind)) return socket.error();
  }
  if (!rule.automatic()) return socket.error();
  socket = bind_to({*host, 0}, kind);
  if (!socket) return socket.error();
  const auto port = bound_port(*socket);
  if (!port) return port.error();
  return StoreAddress{{*host, *port}, std::move(*socket)};
}

bool can_share_token(const LaunchFacts& facts, const EnvMap& environment) {
  if (facts.launcher != "openmpi") return true;
  const bool is_one_node = facts.local_size == facts.world_size;
  return token_of_mpirun(environment).empty() && (is_one_node || is_built_with_pmix());
}

Result<std::unique_ptr<Exchange>> connect(const LaunchFacts& facts, const EnvMap& environment,
                                          const StepOptions& step, bool shares_token) {
  // Variables of an outer job would lead to processes of that job.
  const std::string rank = std::to_string(facts.rank);
  const bool has_pmi = environment.has("PMI_FD") && environment.get("PMI_RANK") == rank;
  if (facts.local_size == facts.world_size) {
    const std::string key =
        facts.node_key.empty() && has_pmi ? key_of_pmi(environment) : facts.node_key;
    if (!key.empty())
      return make_group_exchange(group_on_node(key, facts.rank, facts.world_size, step.token));
  }
  if (has_pmi) return connect_pmi(environment, facts.rank, facts.world_size);
  auto daemons = facts.launcher == "openmpi" && !facts.node_key.empty()
                     ? read_mpirun_daemons(environment)
                     : std::nullopt;
  if (daemons && !shares_token)
    return connect_by_daemons(facts, std::move(*daemons), environment, step.options);
  if (environment.has("PMIX_NAMESPACE") && environment.get("PMIX_RANK") == rank)
    return connect_by_pmix(facts);
  return Error{
      formatted("{}: the {} ranks cannot exchange their nodes: neither PMI_FD nor PMIX_NAMESPACE "
                "is set for this rank: start them with PMI or PMIx (flux run -o pmi=simple, "
                "mpiexec --pmi=pmix), or set RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, "
                "GROUP_RANK, GROUP_WORLD_SIZE, MASTER_ADDR and MASTER_PORT for every rank",
                facts.launcher, facts.world_size)};
}

Result<StoreAddress> publish_store(LaunchFacts& facts, Exchange& exchange,
                                   const std::optional<Endpoint>& given,
                                   const LaunchOptions& options, StoreSocket kind,
                                   std::chrono::milliseconds timeout, bool shares_token) {
  RankRecord own{host_name(), {}, {}, {}};
  Result<StoreAddress> store = StoreAddress();
  if (facts.rank == 0) {
    if (!given) {
      store = bind_store(facts.local_size == facts.world_size, options, kind);
      own.store = store ? store->endpoint : Endpoint{kNoStore, 0};
    }
    own.job = facts.job_id.empty() ? unique_id() : facts.job_id;
    if (shares_token) own.token = random_token();
  }
  const auto texts = exchange.all_gather(own.text(), timeout);
  if (!store) return Error{.message = store.error().message, .only_here = true};
  if (!texts) {
    return Error{.message = facts.launcher + ": " + texts.error().message,
                 .only_here = texts.error().only_here};
  }
  std::vector<RankRecord> records;
  for (const auto& text : *texts) {
    auto record = RankRecord::parse(text);
    if (!record) return record.error();
    records.push_back(std::move(*record));
  }
  const Endpoint& store_of_rank_0 = records.front().store;
  if (store_of_rank_0.host == kNoStore && store_of_rank_0.port == 0)
    return Error{
        formatted("{}: rank 0 has no address for the store and reports the reason", facts.launcher),
        true};
  facts.node_of_rank = number_nodes(records);
  if (const auto taken = set_local_position(facts); !taken)
    return Error{.message = taken.error().message, .only_here = true};
  for (const auto& record : records) {
    const auto& names = facts.nodes;
    if (std::find(names.begin(), names.end(), record.node) == names.end())
      facts.nodes.push_back(record.node);
  }
  if (facts.job_id.empty()) facts.job_id = records.front().job;
  store->endpoint = given ? *given : store_of_rank_0;
  store->token = records.front().token;
  return store;
}

Status set_local_position(LaunchFacts& facts) {
  const int own_node = facts.node_of_rank[facts.rank];
  int here = 0, before = 0;
  for (int rank = 0; rank < facts.world_size; ++rank) {
    if (facts.node_of_rank[rank] != own_node) continue;
    ++here;
    if (rank < facts.rank) ++before;
  }
  if (facts.local_size != 0 && facts.local_size != here) {
    return Error{
        formatted("{}: by its variables rank {} is one of {} on its node, but the number of ranks "
                  "with its host name is {}: give each node one host name of its own",
                  facts.launcher, facts.rank, facts.local_size, here)};
  }
  facts.local_size = here;
  facts.local_rank = before;
  facts.node_rank = own_node;
  return Ok{};
}

}  // namespace torchbridge
