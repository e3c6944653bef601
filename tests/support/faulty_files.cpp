#include "tests/support/faulty_files.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>

namespace torchbridge::train {

namespace fs = std::filesystem;

class WatchedFiles::File : public OutputFile {
 public:
  File(WatchedFiles& layer, fs::path path, std::unique_ptr<OutputFile> file)
      : layer_(layer), path_(std::move(path)), file_(std::move(file)) {}
  void write_at(std::uint64_t offset, std::string_view bytes) override {
    try {
      layer_.before("write");
    } catch (const PowerCut&) {
      file_->write_at(offset, bytes.substr(0, bytes.size() / 2));
      layer_.wrote(path_, offset, bytes.substr(0, bytes.size() / 2));
      throw;
    }
    file_->write_at(offset, bytes);
    layer_.wrote(path_, offset, bytes);
  }
  void sync() override {
    layer_.before("sync");
    layer_.synced(path_);
  }
  void close() override {
    layer_.before("close");
    file_->close();
  }

 private:
  WatchedFiles& layer_;
  const fs::path path_;
  const std::unique_ptr<OutputFile> file_;
};

void WatchedFiles::make_folder(const fs::path& path) {
  before("folder");
  FileLayer::make_folder(path);
}

std::unique_ptr<OutputFile> WatchedFiles::open(const fs::path& path, Owner owner) {
  before("open");
  return std::make_unique<File>(*this, path, FileLayer::open(path, owner));
}

void WatchedFiles::sync_folder(const fs::path&) { before("sync folder"); }

void WatchedFiles::rename(const fs::path& from, const fs::path& to) {
  before("rename");
  FileLayer::rename(from, to);
}

bool WatchedFiles::link(const fs::path& target, const fs::path& path) {
  before("link");
  return FileLayer::link(target, path);
}

void WatchedFiles::remove(const fs::path& path) {
  before("remove");
  FileLayer::remove(path);
}

void FragileFiles::before(const std::string&) {
  if (lives_-- == 0) throw PowerCut();
}

void FragileFiles::make_folder(const fs::path& path) {
  const bool is_new = !fs::exists(path);
  WatchedFiles::make_folder(path);
  if (is_new) unsynced_.push_back({.kind = Kind::kName, .path = path});
}

std::unique_ptr<OutputFile> FragileFiles::open(const fs::path& path, Owner owner) {
  const bool is_new = !fs::exists(path);
  auto file = WatchedFiles::open(path, owner);
  if (is_new) unsynced_.push_back({.kind = Kind::kName, .path = path});
  return file;
}

bool FragileFiles::link(const fs::path& target, const fs::path& path) {
  const bool made = WatchedFiles::link(target, path);
  unsynced_.push_back({.kind = Kind::kName, .path = path});
  return made;
}

void FragileFiles::wrote(const fs::path& path, std::uint64_t offset, std::string_view bytes) {
  unsynced_.push_back({.kind = Kind::kWrite, .path = path, .offset = offset, .size = bytes.size()});
}

void FragileFiles::synced(const fs::path& path) {
  std::erase_if(unsynced_,
                [&](const Unsynced& one) { return one.kind == Kind::kWrite && one.path == path; });
}

void FragileFiles::sync_folder(const fs::path& path) {
  WatchedFiles::sync_folder(path);
  std::erase_if(unsynced_, [&](const Unsynced& one) {
    return one.kind != Kind::kWrite && one.path.parent_path() == path;
  });
}

void FragileFiles::rename(const fs::path& from, const fs::path& to) {
  WatchedFiles::rename(from, to);
  for (Unsynced& one : unsynced_) {
    if (one.path.parent_path() == from) one.path = to / one.path.filename();
    if (one.kind == Kind::kName && one.path == from) one.path = to;
  }
  unsynced_.push_back({.kind = Kind::kRename, .path = to, .from = from});
}

void FragileFiles::remove(const fs::path& path) {
  before("remove");
  if (fs::is_directory(fs::symlink_status(path))) {
    const fs::path grave = path.parent_path() / ("grave-" + std::to_string(unsynced_.size()));
    fs::copy(path, grave, fs::copy_options::recursive);
    unsynced_.push_back({.kind = Kind::kRemoval, .path = path, .from = grave});
  }
  FileLayer::remove(path);
}

void FragileFiles::undo(const Unsynced& one, std::mt19937& random, Loss loss) {
  const auto is_there = [](const fs::path& path) { return fs::exists(fs::symlink_status(path)); };
  if (one.kind == Kind::kWrite && is_there(one.path)) {
    std::fstream file(one.path, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(static_cast<std::streamoff>(one.offset));
    file << std::string(one.size, '\0');
  } else if (one.kind == Kind::kName) {
    fs::remove_all(one.path);
  } else if (one.kind == Kind::kRemoval && !is_there(one.path)) {
    // Its files were gone one by one; each may be back.
    fs::create_directory(one.path);
    for (const auto& entry : fs::directory_iterator(one.from)) {
      if (loss == Loss::kEverything || random() % 2 == 0)
        fs::copy_file(entry.path(), one.path / entry.path().filename());
    }
  } else if (one.kind == Kind::kRename && is_there(one.path) && !is_there(one.from)) {
    fs::rename(one.path, one.from);
  }
}

void FragileFiles::lose_what_was_not_synced(Loss loss, unsigned seed) {
  std::mt19937 random(seed);
  std::ranges::reverse(unsynced_);
  std::ranges::stable_sort(unsynced_, {}, &Unsynced::kind);
  for (const Unsynced& one : unsynced_) {
    if (loss == Loss::kEverything || (loss == Loss::kAtRandom && random() % 2 == 0))
      undo(one, random, loss);
  }
  for (const Unsynced& one : unsynced_) {
    if (one.kind == Kind::kRemoval) fs::remove_all(one.from);
  }
  unsynced_.clear();
}

void FullDisk::before(const std::string& operation) {
  if (operation == "remove" || operation == "close" || good_ < 0) return;
  if (good_ > 0) {
    --good_;
    return;
  }
  if (failed_ && once_) return;
  failed_ = true;
  throw TrainError("cannot " + operation + ": " + std::strerror(error_));
}

void KeepingFiles::remove(const fs::path& path) {
  if (path.filename().string().find(part_) != std::string::npos)
    throw TrainError("cannot remove '" + path.string() + "'");
  FileLayer::remove(path);
}

void SlowDisk::before(const std::string& operation) {
  if (operation != "write") return;
  std::unique_lock lock(mutex_);
  waits_ = !may_go_on_;
  changed_.notify_all();
  changed_.wait(lock, [&] { return may_go_on_; });
}

void SlowDisk::hold() {
  const std::scoped_lock lock(mutex_);
  may_go_on_ = false;
}

void SlowDisk::go_on() {
  const std::scoped_lock lock(mutex_);
  may_go_on_ = true;
  changed_.notify_all();
}

bool SlowDisk::has_begun() {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return waits_; });
}

}  // namespace torchbridge::train
