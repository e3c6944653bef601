#include <torchbridge/train/run/metrics.h>

#include <torchbridge/train/errors.h>

#include <cerrno>
#include <charconv>
#include <cmath>
#include <iterator>

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  char text[64];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;  // the shortest that reads back the same
  return {text, end};
}

// A pipe, a terminal, or what /dev/stdout stands for: it has no past, and nothing is put in its place.
bool is_stream(const fs::path& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored)) return true;
  return fs::is_symlink(path, ignored) && path.string().starts_with("/dev/");
}

std::int64_t step_of_line(std::string_view line) {
  constexpr std::string_view kStart = "{\"step\":";
  std::int64_t step = 0;
  if (!line.starts_with(kStart) || !line.ends_with('}')) return -1;
  line.remove_prefix(kStart.size());
  return std::from_chars(line.data(), line.data() + line.size(), step).ec == std::errc() ? step : -1;
}

}  // namespace

void visit_numbers(const StepRecord& record, const std::function<void(const std::string&, double)>& take) {
  const auto take_known = [&](const char* name, const std::optional<double>& value) {
    if (value) take(name, *value);
  };
  take("loss", record.loss);
  take("lr", record.learning_rate);
  take("samples_per_s", record.samples_per_s);
  take_known("tokens_per_s", record.tokens_per_s);
  take_known("tflops", record.tflops);
  take_known("mfu", record.mfu);
  take_known("grad_norm", record.grad_norm);
  take("data_wait", record.data_wait);
  take_known("comm_share", record.comm_share);
  if (!record.evaluation) return;
  take("eval_loss", record.evaluation->loss);
  for (const auto& [name, value] : record.evaluation->metrics) take("eval_" + name, value);
}

std::string to_json_line(const StepRecord& record) {
  std::string line = "{\"step\":" + std::to_string(record.step) + ",\"epoch\":" + std::to_string(record.epoch);
  visit_numbers(record, [&](const std::string& name, double value) { line += ",\"" + name + "\":" + number(value); });
  if (record.skipped) line += ",\"skipped\":true";
  return line + "}";
}

std::string lines_until(std::string_view text, std::int64_t last_step) {
  std::string kept;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) break;
    const std::string_view line = text.substr(0, end);
    const std::int64_t step = step_of_line(line);
    if (step >= 0 && step <= last_step) kept.append(line).append("\n");
    text.remove_prefix(end + 1);
  }
  return kept;
}

MetricsFile::MetricsFile(const fs::path& path, std::int64_t last_step) : path_(path) {
  if (path_.empty()) return;
  std::error_code error, ignored;
  errno = 0;
  if (is_stream(path_)) {
    file_.open(path_, std::ios::binary | std::ios::app);
    error.assign(errno, std::generic_category());
  } else {
    if (fs::is_symlink(path_, ignored)) path_ = fs::weakly_canonical(path_);  // the link stays one
    if (path_.has_parent_path()) fs::create_directories(path_.parent_path(), ignored);
    std::ifstream before(path_, std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(before)), std::istreambuf_iterator<char>());
    // Written aside and renamed: a kill right here must not lose the curve.
    const fs::path aside = path_.string() + ".tmp";
    errno = 0;
    file_.open(aside, std::ios::binary | std::ios::trunc);
    file_ << lines_until(text, last_step) << std::flush;
    error.assign(errno, std::generic_category());
    if (file_) fs::rename(aside, path_, error);
  }
  if (!file_ || error) throw TrainError("cannot write metrics file '" + path_.string() + "': " + error.message() + "; give another --metrics");
}

void MetricsFile::write(const StepRecord& record) {
  if (path_.empty()) return;
  file_ << to_json_line(record) << '\n' << std::flush;
  if (!file_) throw TrainError("cannot write metrics file '" + path_.string() + "': is the disk full?");
}

}  // namespace torchbridge::train
