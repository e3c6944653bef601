// Every damage to the files of a checkpoint is detected, and the message names the right file.
#include "trainer_template/runtime/checkpoint_format/verify.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <random>

#include <torchbridge/errors.h>

#include "tests/support/growth.h"
#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/checkpoint_format/checkpoint_files.h"
#include "trainer_template/runtime/checkpoint_format/checksum.h"
#include "trainer_template/runtime/formats/safetensors_file.h"
#include "trainer_template/runtime/formats/safetensors_header.h"

namespace torchbridge::train {
namespace {

namespace fs = std::filesystem;

std::string random_bytes(std::size_t size, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string bytes(size, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// A file of two tensors of so many bytes, and what its manifest says: a checksum for the header and
// each tensor.
struct File {
  std::string name, header, first, second;
  std::string content() const { return header + first + second; }
  FileRecord record() const {
    FileRecord record{.name = name, .size = content().size()};
    for (const std::string* part : {&header, &first, &second})
      record.parts.push_back({.size = part->size(), .xxh3 = checksum_of(*part)});
    return record;
  }
};

File file_of(const std::string& name, std::int64_t bytes, std::uint64_t seed) {
  std::vector<TensorEntry> entries = {{.name = "a.weight", .dtype = "U8", .shape = {bytes}},
                                      {.name = "b.weight", .dtype = "U8", .shape = {bytes}}};
  return {name, make_header(entries, {}), random_bytes(bytes, seed), random_bytes(bytes, seed + 1)};
}

class Damage : public testing::Test {
 protected:
  void write(std::int64_t bytes) {
    fs::remove_all(path());
    fs::create_directory(path());
    manifest_ = {.state = {.step = 5, .buckets = {{1, 0}}, .parts = {{"grad_scaler.scale", 65536}}},
                 .world_size = 2,
                 .options = {{"lr", "0.1"}}};
    std::uint64_t seed = 0;
    for (const std::string name : {"model.safetensors", "optimizer-00000-of-00001.safetensors",
                                   "rank-00000.safetensors", "rank-00001.safetensors"}) {
      const File file = file_of(
          name, name.starts_with("rank") ? std::min<std::int64_t>(bytes, 64) : bytes, seed += 2);
      in_checkpoint(name, file.content());
      manifest_.files.push_back(file.record());
    }
    seal();
    in_checkpoint(kDoneFile, "");
  }
  void in_checkpoint(const std::string& name, const std::string& content) {
    folder_.write("step-00000005/" + name, content);
  }
  void seal() { in_checkpoint(kManifestFile, to_json(manifest_)); }
  fs::path path() const { return folder_ / "step-00000005"; }
  std::string fault() const {
    const auto found = verified_manifest(path());
    return found ? "" : found.error().message;
  }
  // Flips a bit, calls `look` and flips it back.
  void with_flipped_bit(const fs::path& file, std::uint64_t bit,
                        const std::function<void()>& look) {
    const int descriptor = open(file.c_str(), O_RDWR | O_CLOEXEC);
    char byte = 0;
    ASSERT_EQ(pread(descriptor, &byte, 1, static_cast<off_t>(bit / 8)), 1);
    const char flipped = static_cast<char>(byte ^ (1 << bit % 8));
    ASSERT_EQ(pwrite(descriptor, &flipped, 1, static_cast<off_t>(bit / 8)), 1);
    look();
    ASSERT_EQ(pwrite(descriptor, &byte, 1, static_cast<off_t>(bit / 8)), 1);
    close(descriptor);
  }
  std::vector<fs::path> files() const {
    std::vector<fs::path> all = {path() / kManifestFile};
    for (const FileRecord& file : manifest_.files) all.push_back(path() / file.name);
    return all;
  }

  TemporaryFolder folder_;
  Manifest manifest_;
};

TEST_F(Damage, NamesTheDamagedFile) {
  const auto change = [&](const std::string& name, const std::function<void(std::string&)>& edit) {
    std::string content = folder_.read("step-00000005/" + name);
    edit(content);
    in_checkpoint(name, content);
  };
  const auto replace = [&](const std::string& name,
                           const std::function<void(const fs::path&)>& make) {
    fs::remove_all(path() / name);
    make(path() / name);
  };
  const std::string model = kModelFile, optimizer = "optimizer-00000-of-00001.safetensors";
  const struct {
    const char* what;
    std::function<void()> damage;
    std::string expected;
  } kCases[] = {
      {"cut off", [&] { fs::resize_file(path() / model, 100); },
       "model.safetensors has 100 bytes, "},
      {"longer", [&] { change(model, [](auto& text) { text += 'x'; }); }, ", expected "},
      {"empty", [&] { in_checkpoint(optimizer, ""); }, optimizer + " has 0 bytes"},
      {"missing", [&] { fs::remove(path() / optimizer); }, optimizer + " is missing"},
      {"a byte of the first tensor",
       [&] { change(model, [](auto& text) { text[text.size() - 65] ^= 1; }); },
       "model.safetensors is damaged: its checksum differs (tensor 'a.weight')"},
      {"a byte of the second tensor", [&] { change(model, [](auto& text) { text.back() ^= 1; }); },
       "model.safetensors is damaged: its checksum differs (tensor 'b.weight')"},
      {"the header", [&] { change(model, [](auto& text) { text[text.find("b.weight")] = 'c'; }); },
       "its checksum differs (its header)"},
      {"a header of 2^63 bytes", [&] { change(model, [](auto& text) { text[7] = '\x80'; }); },
       "model.safetensors is damaged: its checksum differs"},
      {"two files swapped",
       [&] {
         fs::rename(path() / "rank-00000.safetensors", path() / "x");
         fs::rename(path() / "rank-00001.safetensors", path() / "rank-00000.safetensors");
         fs::rename(path() / "x", path() / "rank-00001.safetensors");
       },
       "rank-00000.safetensors is damaged"},
      {"a link to the same content",
       [&] {
         fs::rename(path() / model, folder_ / "elsewhere");
         fs::create_symlink(folder_ / "elsewhere", path() / model);
       },
       "model.safetensors is a link, which is not followed"},
      {"a pipe", [&] { replace(model, [](const fs::path& at) { mkfifo(at.c_str(), 0600); }); },
       "model.safetensors is not a regular file"},
      {"a folder", [&] { replace(model, [](const fs::path& at) { fs::create_directory(at); }); },
       "model.safetensors is not a regular file"},
      {"a manifest that was edited",
       [&] { change(kManifestFile, [](auto& text) { text[text.find("65536")] = '7'; }); },
       "manifest.json is damaged: its checksum differs"},
      {"a manifest that is cut off", [&] { fs::resize_file(path() / kManifestFile, 50); },
       "manifest.json is invalid"},
      {"a manifest with more behind it",
       [&] { change(kManifestFile, [](auto& text) { text += ' '; }); }, "manifest.json is damaged"},
      {"a manifest that is a link",
       [&] {
         fs::rename(path() / kManifestFile, folder_ / "manifest");
         fs::create_symlink(folder_ / "manifest", path() / kManifestFile);
       },
       "manifest.json is a link"},
      {"no manifest", [&] { fs::remove(path() / kManifestFile); }, "manifest.json is missing"},
      {"a name that leads out",
       [&] {
         manifest_.files[0].name = "../model.safetensors";
         seal();
       },
       "names a file outside of its folder"},
      {"a name that is there twice",
       [&] {
         manifest_.files.push_back(manifest_.files[0]);
         seal();
       },
       "names 'model.safetensors' twice"},
      {"a checksum for a part only",
       [&] {
         manifest_.files[0].parts.pop_back();
         seal();
       },
       "has no checksum for every byte of 'model.safetensors'"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(c.what);
    write(64);
    ASSERT_EQ(fault(), "");
    c.damage();
    EXPECT_TRUE(contains(fault(), c.expected));
  }
}

TEST_F(Damage, OfEveryTensorIsNamedInLinearTime) {
  const auto verify = [&](int tensors) {
    std::vector<TensorEntry> entries;
    for (int i = 0; i < tensors; ++i)
      entries.push_back({.name = std::to_string(i), .dtype = "U8", .shape = {1}});
    const std::string header = make_header(entries, {});
    FileRecord record{.name = kModelFile, .size = header.size() + tensors};
    record.parts = {{.size = header.size(), .xxh3 = checksum_of(header)}};
    record.parts.resize(1 + tensors, {.size = 1, .xxh3 = checksum_of("y")});
    folder_.write(kModelFile, header + std::string(tensors, 'x'));
    EXPECT_EQ(std::ssize(all_faults(folder_.path(), {.files = {record}})), tensors);
  };
  EXPECT_LT(growth(1'000, verify), kLinearGrowth);
}

// Files whose checksums are right but whose headers are inconsistent, as an attacker could write
// them.
TEST_F(Damage, InconsistentHeadersAreRejectedWithoutReadingPastTheEnd) {
  const auto file = [](const std::string& json, std::size_t bytes) {
    std::string length(8, '\0');
    length[0] = static_cast<char>(json.size());
    return length + json + std::string(bytes, 'x');
  };
  std::string huge = file("{}", 0);
  huge[7] = '\x80';
  const struct {
    std::string content, expected;
  } kCases[] = {
      {huge, "declares a header of 9223372036854775810 bytes"},
      {file("{}", 0).substr(0, 9), "declares a header"},
      {file(R"({"a":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", 4), "the file has 4"},
      {file(R"({"a":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}})", 4),
       "does not match its data_offsets"},
      {file(
           R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           8),
       "holds 'a' twice"},
      {file(R"({"a":{"dtype":"F99","shape":[3],"data_offsets":[0,4]}})", 4), "unknown type 'F99'"},
  };
  for (const auto& c : kCases) {
    folder_.write("file", c.content);
    EXPECT_TRUE(contains(error_of([&] { SafetensorsFile(folder_ / "file"); }), c.expected));
  }
  fs::create_symlink(folder_ / "file", folder_ / "link");
  EXPECT_TRUE(contains(error_of([&] { SafetensorsFile(folder_ / "link", Links::kRejected); }),
                       "is a link"));
}

TEST_F(Damage, EveryFaultIsListed) {
  write(64);
  folder_.write("step-00000005/model.safetensors", "x");
  fs::remove(path() / "rank-00001.safetensors");
  const auto faults = all_faults(path(), manifest_);
  ASSERT_EQ(faults.size(), 2u);
  EXPECT_TRUE(contains(faults[0], "model.safetensors has 1 bytes"));
  EXPECT_TRUE(contains(faults[1], "rank-00001.safetensors is missing"));
}

TEST_F(Damage, RanksTogetherVerifyEverything) {
  write(5000);
  for (const fs::path& file : files()) {
    if (file.filename() == kManifestFile) continue;
    for (const int shards : {1, 2, 3, 7, 100}) {
      with_flipped_bit(file, fs::file_size(file) * 8 - 1, [&] {
        int found = 0;
        for (int shard = 0; shard < shards; ++shard)
          found += !verify_files(path(), manifest_, shard, shards);
        EXPECT_EQ(found, 1) << file << " divided among " << shards;
      });
    }
  }
}

TEST_F(Damage, ImagesHoldTheVerifiedBytes) {
  write(3'000'000);
  const std::string model = "model.safetensors";
  FileImages images = images_for(manifest_, {model, "no such file"});
  ASSERT_EQ(images.size(), 1u);
  EXPECT_TRUE(verify_files(path(), manifest_, 0, 1, images));
  EXPECT_TRUE(images[model]->bytes() == folder_.read("step-00000005/" + model));
}

// The other files are verified by one rank each. A rank without memory for an image verifies the
// same.
TEST_F(Damage, EachRankVerifiesTheFilesThatItKeeps) {
  write(5000);
  for (const fs::path& file : files()) {
    if (file.filename() == kManifestFile) continue;
    for (const std::uint64_t bit :
         {std::uint64_t{0}, fs::file_size(file) * 4, fs::file_size(file) * 8 - 1}) {
      with_flipped_bit(file, bit, [&] {
        const FileImages kept = images_for(manifest_, {"model.safetensors"}),
                         without_memory = {{"model.safetensors", nullptr}};
        int found = 0;
        for (int shard = 0; shard < 3; ++shard)
          found += !verify_files(path(), manifest_, shard, 3, shard == 1 ? without_memory : kept);
        EXPECT_EQ(found, file.filename() == "model.safetensors" ? 3 : 1) << file << " bit " << bit;
      });
    }
  }
}

TEST_F(Damage, EveryFlippedBitOfASmallCheckpointIsDetected) {
  write(24);
  ASSERT_EQ(fault(), "");
  std::size_t flips = 0, detected = 0;
  for (const fs::path& file : files()) {
    for (std::uint64_t bit = 0; bit < fs::file_size(file) * 8; ++bit) {
      with_flipped_bit(file, bit, [&] { detected += !verified_manifest(path()); });
      ++flips;
    }
  }
  EXPECT_EQ(detected, flips);
  EXPECT_GT(flips, 10'000u);
  EXPECT_EQ(fault(), "");
  RecordProperty("flips", std::to_string(flips));
}

std::uint64_t setting(const char* variable, std::uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text ? std::strtoull(text, nullptr, 10) : fallback;
}

// In full: TORCHBRIDGE_FLIPS=100000 TORCHBRIDGE_FLIPPED_BYTES=16000000 (of a tensor).
TEST_F(Damage, RandomFlippedBitsOfALargeCheckpointAreDetected) {
  const std::uint64_t flips = setting("TORCHBRIDGE_FLIPS", 300);
  write(static_cast<std::int64_t>(setting("TORCHBRIDGE_FLIPPED_BYTES", 1'000'000)));
  std::mt19937_64 random(1);
  const auto all = files();
  std::vector<double> sizes;
  for (const fs::path& file : all) sizes.push_back(static_cast<double>(fs::file_size(file)));
  std::discrete_distribution<std::size_t> by_size(sizes.begin(), sizes.end());
  std::uint64_t detected = 0;
  for (std::uint64_t i = 0; i < flips; ++i) {
    const fs::path& file = all[by_size(random)];
    with_flipped_bit(file, random() % (fs::file_size(file) * 8),
                     [&] { detected += !verified_manifest(path()); });
  }
  EXPECT_EQ(detected, flips);
  EXPECT_EQ(fault(), "");
}

}  // namespace
}  // namespace torchbridge::train
