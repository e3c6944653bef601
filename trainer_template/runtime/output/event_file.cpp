#include "trainer_template/runtime/output/event_file.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>

#include "trainer_template/runtime/formats/event_record.h"

namespace torchbridge::train {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// TensorBoard reads a folder's files in the order of their names, and two starts may be within one
// second: hence the microseconds.
std::string file_name() {
  char host[256] = "localhost", time[64];
  gethostname(host, sizeof host - 1);
  std::snprintf(time, sizeof time, "%017.6f", now());
  return std::string("events.out.tfevents.") + time + "." + host + "." + std::to_string(getpid());
}

}  // namespace

EventFile::EventFile(const std::filesystem::path& folder, std::int64_t last_step) {
  if (folder.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  file_ = RecordFile(folder / file_name(), "--tensorboard");
  enabled_ = true;
  put(version_event(now()));
  put(start_event(now(), last_step + 1));
  flush();
}

void EventFile::write(std::int64_t step, const std::string& name, double value) {
  if (enabled_) put(scalar_event(now(), step, name, static_cast<float>(value)));
}

void EventFile::put(const std::string& event) { events_ += tf_record(event); }

void EventFile::flush() {
  file_.append(events_);
  events_.clear();
}

}  // namespace torchbridge::train
