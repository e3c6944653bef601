#include "bridge/cli/run_option_values.h"

#include <signal.h>
#include <string.h>

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <string_view>

#include "bridge/base/env_map.h"
#include "bridge/base/nearest_name.h"
#include "bridge/base/take_until.h"

namespace torchbridge {
namespace {

constexpr int kMostPort = 65535;

Error wrong_value(std::string_view text, const std::string& reason) { return {"'" + printable(text) + "': " + reason}; }

std::string_view trimmed(std::string_view text) {
  const auto begin = std::min(text.find_first_not_of(" \t\n"), text.size());
  return text.substr(begin, text.find_last_not_of(" \t\n") + 1 - begin);
}

// The parts between commas, at least one.
std::vector<std::string_view> list_of(std::string_view text) {
  std::vector<std::string_view> parts;
  for (std::size_t end = 0; end != text.npos; text.remove_prefix(end == text.npos ? 0 : end + 1)) {
    end = text.find(',');
    parts.push_back(text.substr(0, end));
  }
  return parts;
}

// What a value of --rdzv-conf may be.
enum class ConfKind { kCount, kInterval, kAttempts, kRank, kYesOrNo, kStore, kProtocol, kText };

struct ConfKey {
  std::string_view name;
  ConfKind kind;
};

constexpr ConfKey kConfKeys[] = {
    {"join_timeout", ConfKind::kCount},
    {"last_call_timeout", ConfKind::kCount},
    {"close_timeout", ConfKind::kCount},
    {"heartbeat_timeout", ConfKind::kCount},
    {"keep_alive_interval", ConfKind::kInterval},
    {"keep_alive_max_attempt", ConfKind::kAttempts},
    {"read_timeout", ConfKind::kCount},
    {"timeout", ConfKind::kCount},
    {"rank", ConfKind::kRank},
    {"is_host", ConfKind::kYesOrNo},
    {"store_type", ConfKind::kStore},
    {"protocol", ConfKind::kProtocol},
    {"ssl_cert", ConfKind::kText},
    {"ssl_cert_key", ConfKind::kText},
    {"ca_cert", ConfKind::kText},
    {"etcd_prefix", ConfKind::kText},
    {"user", ConfKind::kText},  // not of torch, whose etcd backends have no authentication
    {"password", ConfKind::kText},
    // torch's first etcd backend has these names for the same files.
    {"cert", ConfKind::kText},
    {"key", ConfKind::kText},
    {"cacert", ConfKind::kText},
};

bool is_yes_or_no(std::string text) {
  constexpr std::string_view kWords[] = {"1", "true", "t", "yes", "y", "0", "false", "f", "no", "n"};
  for (char& letter : text) letter = static_cast<char>(tolower(static_cast<unsigned char>(letter)));
  return std::ranges::count(kWords, text) > 0;
}

Status check_conf(const std::string& name, const std::string& value) {
  const auto key = std::ranges::find(kConfKeys, name, &ConfKey::name);
  if (key == std::end(kConfKeys)) {
    std::vector<std::string> names;
    for (const ConfKey& each : kConfKeys) names.emplace_back(each.name);
    return Error{"unknown key '" + printable(name) + "'" + did_you_mean(name, names)};
  }
  if (value.empty()) return Error{"key '" + name + "' has no value: expected KEY=VALUE,..."};
  if (key->kind == ConfKind::kYesOrNo && !is_yes_or_no(value))
    return Error{name + "=" + wrong_value(value, "expected true or false").message};
  constexpr int kDay = 86'400, kMostAttempts = 1000;
  const auto check_number = [&](int low, int high) -> Status {
    const auto number = parse_whole_number(value, low, high);
    if (!number) return Error{name + "=" + number.error().message};
    return Ok{};
  };
  const auto check_word = [&](const std::vector<std::string>& words) -> Status {
    if (std::ranges::count(words, value) > 0) return Ok{};
    return Error{name + "=" +
                 wrong_value(value, "expected " + words[0] + " or " + words[1] + did_you_mean(value, words)).message};
  };
  switch (key->kind) {
    case ConfKind::kCount:
      return check_number(1, INT_MAX);
    case ConfKind::kInterval:
      return check_number(1, kDay);
    case ConfKind::kAttempts:
      return check_number(1, kMostAttempts);
    case ConfKind::kRank:
      return check_number(0, INT_MAX);
    case ConfKind::kStore:
      return check_word({"tcp", "file"});
    case ConfKind::kProtocol:
      return check_word({"http", "https"});
    default:
      return Ok{};
  }
}

std::optional<int> stream_number(std::string_view text) {
  const auto number = parse_integer(text, kNoStream, kStdout | kStderr);
  return number ? std::optional(static_cast<int>(*number)) : std::nullopt;
}

// A name without SIG, as "TERM", or 0.
int signal_named(std::string_view name) {
  if (name.starts_with("SIG")) name.remove_prefix(3);
  for (int number = 1; number < NSIG; ++number) {
    const char* known = sigabbrev_np(number);
    if (known && name == known) return number;
  }
  return 0;
}

std::vector<std::string> signal_names() {
  std::vector<std::string> names;
  for (int number = 1; number < NSIG; ++number) {
    if (const char* name = sigabbrev_np(number)) names.push_back(std::string("SIG") + name);
  }
  return names;
}

// Not by std::from_chars, whose part for floating point would make the program need libm.
Result<double> seconds_of(const std::string& text, double low, const std::string& expected) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool is_decimal = !text.empty() && text.find_first_not_of("0123456789.eE+-") == text.npos;
  if (!is_decimal || *end != '\0' || !std::isfinite(value) || value < low)
    return wrong_value(text, "expected a number of seconds " + expected);
  return value;
}

}  // namespace

Result<NodeRange> parse_node_range(const std::string& text) {
  std::string_view rest = text;
  const auto least = parse_integer(take_until(rest, ':'), 1, INT_MAX);
  const auto most = text.find(':') == text.npos ? least : parse_integer(rest, 1, INT_MAX);
  if (!least || !most || *least > *most) {
    return wrong_value(text, "expected the number of nodes, or MIN:MAX with 1 <= MIN <= MAX");
  }
  return NodeRange{static_cast<int>(*least), static_cast<int>(*most)};
}

Result<std::string> parse_worker_count(const std::string& text) {
  const std::vector<std::string> kWords = {"auto", "cpu", "gpu"};
  if (std::ranges::count(kWords, text) > 0) return text;
  if (text == "xpu") return wrong_value(text, "xpu devices are not counted: give the number of workers");
  const auto count = parse_integer(text, 1, INT_MAX);
  if (!count) return wrong_value(text, "expected a number from 1, auto, cpu or gpu" + did_you_mean(text, kWords));
  return std::to_string(*count);
}

Result<int> parse_whole_number(const std::string& text, int low, int high) {
  const auto number = parse_integer(text, low, high);
  if (number) return static_cast<int>(*number);
  return wrong_value(text, "expected a whole number from " + std::to_string(low) +
                               (high == INT_MAX ? "" : " to " + std::to_string(high)));
}

Result<double> parse_seconds(const std::string& text) { return seconds_of(text, 0, "from 0"); }

Result<double> parse_seconds_above_zero(const std::string& text) {
  return seconds_of(text, std::numeric_limits<double>::min(), "above 0");
}

Result<std::optional<int>> parse_port(const std::string& text) {
  const auto port = parse_whole_number(text, 0, kMostPort);
  if (!port) return port.error();
  return *port == 0 ? std::nullopt : std::optional(*port);
}

Result<std::map<std::string, std::string>> parse_rdzv_conf(const std::string& text) {
  std::map<std::string, std::string> values;
  if (trimmed(text).empty()) return values;
  for (std::string_view value : list_of(text)) {
    const std::string key(trimmed(take_until(value, '=')));
    value = trimmed(value);
    const Status status = check_conf(key, std::string(value));
    if (!status) return status.error();
    values[key] = value;
  }
  return values;
}

Result<StreamSelection> parse_streams(const std::string& text) {
  StreamSelection streams;
  if (const auto all = stream_number(text)) {
    streams.all = *all;
    return streams;
  }
  for (std::string_view number : list_of(text)) {
    const auto local_rank = parse_integer(take_until(number, ':'), 0, INT_MAX);
    const auto stream = stream_number(number);
    if (!local_rank || !stream) {
      return wrong_value(text, "expected 0 (no stream), 1 (stdout), 2 (stderr) or 3 (both), or LOCAL_RANK:NUMBER,...");
    }
    streams.by_local_rank[static_cast<int>(*local_rank)] = *stream;
  }
  return streams;
}

Result<std::optional<std::set<int>>> parse_ranks(const std::string& text) {
  if (text.empty()) return std::optional<std::set<int>>();
  std::set<int> ranks;
  for (const std::string_view part : list_of(text)) {
    const auto rank = parse_integer(trimmed(part), 0, INT_MAX);
    if (!rank) return wrong_value(text, "expected local ranks with commas between them, as in 0,1,2");
    ranks.insert(static_cast<int>(*rank));
  }
  return std::optional(ranks);
}

Result<std::vector<std::string>> parse_filters(const std::string& text) {
  std::vector<std::string> filters(1);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_escaped = text.compare(i, 2, ",,") == 0;
    if (text[i] == ',' && !is_escaped) {
      filters.emplace_back();
    } else {
      filters.back() += text[i];
      i += is_escaped ? 1 : 0;
    }
  }
  return filters;
}

Result<std::vector<int>> parse_signals(const std::string& text) {
  std::vector<int> signals;
  for (const std::string_view part : list_of(text)) {
    const std::string name(trimmed(part));
    const int number = signal_named(name);
    if (number == 0) return wrong_value(name, "expected names of signals" + did_you_mean(name, signal_names()));
    if (number == SIGKILL || number == SIGSTOP) return wrong_value(name, "no program can handle it: leave it out");
    if (std::ranges::count(signals, number) == 0) signals.push_back(number);
  }
  return signals;
}

}  // namespace torchbridge
