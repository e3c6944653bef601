// The data sets of the library, and one of a user's own, as the loader reads them.
#include <fstream>
#include <sstream>

#include <torchbridge/data.h>
#include <torchbridge/skipped_samples.h>

#include "tests/support/image_files.h"
#include "tests/support/own_dataset.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/token_files.h"
#include "trainer_template/runtime/checkpoint_format/checksum.h"

namespace torchbridge::train {
namespace {

template <class T>
std::vector<T> values(const at::Tensor& tensor) {
  const T* first = tensor.const_data_ptr<T>();
  return {first, first + tensor.numel()};
}

using Integers = std::vector<std::int64_t>;

TEST(TokenWindows, TargetsAreTheNextTokens) {
  TemporaryFolder folder;
  folder.write("a.bin", token_bytes({10, 11, 12, 13, 14, 15, 16}));
  folder.write("b.bin", llm_c_header(20240520, 1, 4) + token_bytes({20, 21, 22, 23}));
  const TokenWindows windows({folder / "a.bin", folder / "b.bin"}, {.length = 3});
  ASSERT_EQ(windows.size(), 3);
  const Batch batch = windows.collate(Integers{2, 0, 1});
  EXPECT_EQ(batch.inputs.sizes(), (at::IntArrayRef{3, 3}));
  EXPECT_EQ(values<std::int64_t>(batch.inputs), (Integers{20, 21, 22, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(values<std::int64_t>(batch.targets), (Integers{21, 22, 23, 11, 12, 13, 14, 15, 16}));
}

TEST(TokenWindows, MayOverlap) {
  TemporaryFolder folder;
  folder.write("a.bin", token_bytes({10, 11, 12, 13, 14}));
  const TokenWindows windows({folder / "a.bin"}, {.length = 2, .stride = 1});
  ASSERT_EQ(windows.size(), 3);
  EXPECT_EQ(values<std::int64_t>(windows.collate(Integers{2}).targets), (Integers{13, 14}));
}

TEST(TokenWindows, NamesTheError) {
  TemporaryFolder folder;
  folder.write("a.bin", token_bytes({10, 11, 50257, 13}));
  EXPECT_TRUE(contains(error_of([&] { TokenWindows({folder / "a.bin"}, {.length = 4}); }),
                       "a.bin: has 4 tokens, expected at least 5"));
  EXPECT_EQ(error_of([&] { TokenWindows({}, {}); }), "no token files are given");
  const TokenWindows windows({folder / "a.bin"}, {.length = 3, .vocabulary = 50257});
  EXPECT_EQ(error_of([&] { windows.collate(Integers{0}); }),
            (folder / "a.bin").string() + ": byte 4: token 50257, expected one below 50257");
}

TEST(TokenWindows, ReachesTheEndOfALargeFile) {
  constexpr std::int64_t kTokens = std::int64_t{3} << 29;  // 3 GiB, all holes
  TemporaryFolder folder;
  folder.write("large.bin", "");
  std::filesystem::resize_file(folder / "large.bin", 2 * kTokens);
  {
    std::fstream file(folder / "large.bin", std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(2 * kTokens - 4);
    file.write("\7\0\x9\0", 4);
  }
  const TokenWindows windows({folder / "large.bin"}, {.length = 2, .stride = 1});
  Loader loader(windows, {.size = windows.size(), .order = Order::kPermuted},
                {.batch_size = 8, .max_batches = 3});
  while (const auto batch = loader.next()) EXPECT_EQ(batch->samples(), 8);
  EXPECT_EQ(values<std::int64_t>(windows.collate(Integers{windows.size() - 1}).targets),
            (Integers{7, 9}));
}

TEST(TextWindows, BytesAreTokensAndTargetsTheNextOnes) {
  TemporaryFolder folder;
  folder.write("t.txt", std::string("abcdefg\xff", 8));
  const TextWindows windows(folder / "t.txt", 3);
  EXPECT_EQ(windows.size(), 2);
  const Batch batch = windows.collate(Integers{1, 0});
  EXPECT_EQ(values<std::int64_t>(batch.inputs), (Integers{'d', 'e', 'f', 'a', 'b', 'c'}));
  EXPECT_EQ(values<std::int64_t>(batch.targets), (Integers{'e', 'f', 'g', 'b', 'c', 'd'}));
  EXPECT_EQ(values<std::int64_t>(TextWindows(folder / "t.txt", 1).collate(Integers{6}).targets),
            (Integers{255}));
}

TEST(TextWindows, PartsOfAFileDoNotOverlap) {
  TemporaryFolder folder;
  folder.write("t.txt", "0123456789");
  const TextWindows first(folder / "t.txt", 2, {0, 0.5}), second(folder / "t.txt", 2, {0.5, 1});
  EXPECT_EQ(values<std::int64_t>(first.collate(Integers{first.size() - 1}).targets).back(), '4');
  EXPECT_EQ(values<std::int64_t>(second.collate(Integers{0}).inputs).front(), '5');
}

TEST(TextWindows, NamesTheError) {
  using namespace std::string_literals;
  TemporaryFolder folder;
  folder.write("short.txt", "ab");
  folder.write("empty.txt", "");
  EXPECT_TRUE(
      contains(error_of([&] { TextWindows(folder / "short.txt", 2); }), "short.txt: has 2 bytes"));
  EXPECT_TRUE(contains(error_of([&] { TextWindows(folder / "empty.txt", 2); }), "empty.txt"));
  EXPECT_TRUE(contains(error_of([&] { TextWindows(folder / "none.txt", 2); }), "none.txt"));
  const std::pair<std::string, std::string> kOthers[] = {
      {"\x1f\x8b\x08", "is compressed by gzip"},
      {"BZh91AY", "is compressed by bzip2"},
      {"\xfd"
       "7zXZ\0"s,
       "is compressed by xz"},
      {"\x28\xb5\x2f\xfd", "is compressed by zstd"},
      {"PK\3\4", "is a ZIP archive"},
      {"\xff\xfe"
       "a\0"s,
       "is UTF-16 text"},
      {"a\0b\0"s, "is UTF-16 text"},
      {"\xff\xfe\0\0"s, "is UTF-32 text"}};
  for (const auto& [begin, expected] : kOthers) {
    folder.write("other.txt", begin + " and more bytes");
    const std::string error = error_of([&] { TextWindows(folder / "other.txt", 2); });
    EXPECT_TRUE(contains(error, "other.txt: " + expected)) << error;
  }
}

TEST(Table, OneColumnIsTheTarget) {
  TemporaryFolder folder;
  folder.write("t.csv", "a,y,b\n1,0,2\n3,1,4\n5,2,6\n");
  const Table numbers(folder / "t.csv", {}),
      classes(folder / "t.csv", {.target = "y", .kind = TargetKind::kClass});
  EXPECT_EQ(values<double>(numbers.collate(Integers{1}).targets), (std::vector<double>{4}))
      << "the last column";
  EXPECT_EQ(classes.features(), 2);
  EXPECT_EQ(classes.classes(), 3);
  const Batch batch = classes.collate(Integers{2, 0});
  EXPECT_EQ(batch.inputs.sizes(), (at::IntArrayRef{2, 2}));
  EXPECT_EQ(values<double>(batch.inputs), (std::vector<double>{5, 6, 1, 2}));
  EXPECT_EQ(values<std::int64_t>(batch.targets), (Integers{2, 0}));
}

TEST(Table, NamesTheError) {
  TemporaryFolder folder;
  folder.write("t.csv", "a,y\n1,0\n3,0.5\n");
  folder.write("one.csv", "a\n1\n");
  EXPECT_TRUE(contains(error_of([&] { Table(folder / "t.csv", {.kind = TargetKind::kClass}); }),
                       "t.csv: line 3, column 2: 0.5"));
  EXPECT_TRUE(contains(error_of([&] { Table(folder / "t.csv", {.target = "z"}); }),
                       "has no column 'z'; expected one of a, y"));
  EXPECT_TRUE(contains(error_of([&] { Table(folder / "one.csv", {}); }), "has one column"));
}

std::string flat_png(int width, int height, std::uint8_t value) {
  return png_file(width, height, PNG_FORMAT_GRAY, std::vector<std::uint8_t>(width * height, value));
}

std::string fingerprint(const Dataset& samples) { return fingerprint_of(samples.contents()); }

// A copy of a data set has the same fingerprint, another data set of the same size a different one.
TEST(Datasets, FingerprintsDifferForDataOfOneSize) {
  TemporaryFolder folder;
  for (const char* name : {"t", "copy"}) {
    folder.write(std::string(name) + ".txt", "0123456789");
    folder.write(std::string(name) + ".bin", token_bytes({10, 11, 12, 13}));
    folder.write(std::string(name) + ".csv", "a,b\n1,2\n3,4\n");
  }
  folder.write("other.txt", "0123456780");
  folder.write("other.bin", token_bytes({10, 11, 12, 14}));
  folder.write("other.csv", "a,b\n1,2\n3,5\n");
  const auto text = [&](const char* name, TextPart part = {}) {
    return fingerprint(TextWindows(folder / name, 2, part));
  };
  const auto tokens = [&](const char* name) {
    return fingerprint(TokenWindows({folder / name}, {.length = 2}));
  };
  const auto table = [&](const char* name, const char* target = "") {
    return fingerprint(Table(folder / name, {.target = target}));
  };
  EXPECT_NE(text("t.txt"), "");
  EXPECT_EQ(text("t.txt"), text("copy.txt"));
  EXPECT_NE(text("t.txt"), text("other.txt"));
  EXPECT_EQ(text("t.txt", {0, 0.5}), text("other.txt", {0, 0.5}))
      << "they differ outside of this part";
  EXPECT_EQ(tokens("t.bin"), tokens("copy.bin"));
  EXPECT_NE(tokens("t.bin"), tokens("other.bin"));
  EXPECT_EQ(table("t.csv"), table("copy.csv"));
  EXPECT_NE(table("t.csv"), table("other.csv"));
  EXPECT_NE(table("t.csv"), table("t.csv", "a")) << "another target";
  EXPECT_EQ(fingerprint(Squares()), "") << "it has none";
}

class Pictures : public testing::Test {
 protected:
  void SetUp() override {
    for (const char* name : {"cat", "dog"}) std::filesystem::create_directory(folder / name);
    folder.write("cat/b.png", png_file(2, 1, PNG_FORMAT_RGB, {255, 0, 51, 0, 255, 102}));
    folder.write("cat/a.PNG", flat_png(2, 1, 255));
    folder.write("dog/c.png", flat_png(8, 4, 51));
    folder.write("dog/.thumbnails", "no image");
  }
  TemporaryFolder folder;
};

TEST_F(Pictures, FoldersAreClasses) {
  const ImageFolder images(folder.path(), {.height = 1, .width = 2});
  EXPECT_EQ(images.class_names(), (std::vector<std::string>{"cat", "dog"}));
  ASSERT_EQ(images.size(), 3);
  const Batch batch = images.collate(Integers{1, 2, 0});
  EXPECT_EQ(batch.inputs.sizes(), (at::IntArrayRef{3, 3, 1, 2}));
  EXPECT_EQ(values<std::int64_t>(batch.targets), (Integers{0, 1, 0}));
  const auto pixels = values<float>(batch.inputs);
  const std::vector<float> first(pixels.begin(), pixels.begin() + 6);
  EXPECT_EQ(first, (std::vector<float>{1, 0, 0, 1, 51 / 255.f, 102 / 255.f}))
      << "channel by channel";
  for (int i = 6; i < 12; ++i) EXPECT_NEAR(pixels[i], 51 / 255.f, 1e-6) << "resized from 8x4";
  for (int i = 12; i < 18; ++i) EXPECT_EQ(pixels[i], 1);
}

TEST_F(Pictures, OthersArePassedOverAndCounted) {
  EXPECT_EQ(ImageFolder(folder.path(), {}).note(), "");
  for (const char* file : {"labels.csv", "LICENSE.txt", "cat/Thumbs.db", "dog/e.webp"})
    folder.write(file, "text");
  const ImageFolder images(folder.path(), {});
  EXPECT_EQ(images.size(), 3);
  EXPECT_EQ(images.note(), "4 files passed over, not .png, .jpg or .jpeg: the first is " +
                               (folder / "LICENSE.txt").string());
}

// The order of sorted(os.walk("cat", followlinks=True)), by whole texts: '-' is before '/'.
TEST_F(Pictures, DeeperFoldersAreWalkedAsTorchvisionDoes) {
  const char* kOrder[] = {"cat/z.png", "cat/a/z.png", "cat/a-b/c.png", "cat/a/b/c.png",
                          "cat/b/linked.png"};
  for (const auto& name : {"cat/a.PNG", "cat/b.png", "dog/c.png"})
    std::filesystem::remove(folder / name);
  for (const char* name : {"cat/a/b", "cat/a-b", "cat/.hidden", "elsewhere", "dog/only/deep"})
    std::filesystem::create_directories(folder / name);
  std::filesystem::rename(folder / "elsewhere", folder.path().string() + "-elsewhere");
  folder.write("dog/only/deep/d.png", flat_png(1, 1, 200));
  folder.write("cat/.hidden/h.png", flat_png(1, 1, 201));
  std::filesystem::create_directory_symlink(folder.path().string() + "-elsewhere",
                                            folder / "cat/b");
  std::filesystem::create_directory_symlink(folder / "cat", folder / "cat/a/back");  // passed over
  for (int i = 0; i < 5; ++i) folder.write(kOrder[i], flat_png(1, 1, i));
  const ImageFolder images(folder.path(), {.height = 1, .width = 1});
  ASSERT_EQ(images.size(), 6);
  const Batch batch = images.collate(Integers{0, 1, 2, 3, 4, 5});
  EXPECT_EQ(values<std::int64_t>(batch.targets), (Integers{0, 0, 0, 0, 0, 1}));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(batch.inputs[i][0].item<float>(), i / 255.f) << kOrder[i];
  std::filesystem::remove_all(folder.path().string() + "-elsewhere");
}

TEST_F(Pictures, AnEvaluationSetHasTheClassesOfTheTrainingSet) {
  const ImageFolder train(folder.path(), {});
  TemporaryFolder other;
  for (const char* name : {"dog", "empty"}) std::filesystem::create_directory(other / name);
  other.write("dog/a.png", flat_png(2, 1, 9));
  const ImageFolderOptions options{.height = 1, .width = 2, .classes = train.class_names()};
  EXPECT_TRUE(contains(error_of([&] { ImageFolder(other.path(), options); }),
                       "empty: is a class that the training set does not have"));
  std::filesystem::rename(other / "empty", other / "cat");
  const ImageFolder images(other.path(), options);
  EXPECT_EQ(images.class_names(), train.class_names());
  EXPECT_EQ(values<std::int64_t>(images.collate(Integers{0}).targets), Integers{1});
  std::filesystem::remove(other / "dog/a.png");
  EXPECT_TRUE(contains(error_of([&] { ImageFolder(other.path(), options); }), ": has no images"));
}

TEST_F(Pictures, NamesAndSizesMakeTheFingerprint) {
  const auto now = [&] { return fingerprint(ImageFolder(folder.path(), {})); };
  const std::string before = now();
  folder.write("dog/.thumbnails", "still none");
  EXPECT_EQ(now(), before);
  std::filesystem::rename(folder / "dog/c.png", folder / "dog/d.png");
  EXPECT_NE(now(), before);
  folder.write("dog/c.png", flat_png(9, 4, 51) + " ");
  std::filesystem::remove(folder / "dog/d.png");
  EXPECT_NE(now(), before);
}

TEST_F(Pictures, DamageIsNamedWithSampleAndFile) {
  std::string damaged = flat_png(2, 1, 9);
  damaged[45] = static_cast<char>(damaged[45] ^ 1);  // behind the header
  folder.write("dog/d.png", damaged);
  const ImageFolder images(folder.path(), {.height = 1, .width = 2});
  Loader loader(images, {.size = images.size(), .order = Order::kSequential}, {.workers = 2});
  const std::string message = error_of([&] { loader.next(); });
  EXPECT_TRUE(contains(message,
                       "sample 3: " + (folder / "dog/d.png").string() + ": is a damaged PNG file"));
}

TEST_F(Pictures, WhatIsNoImageCanBeSkipped) {
  folder.write("dog/e.jpg", "GIF89a");
  const ImageFolder images(folder.path(), {.height = 1, .width = 2, .check_headers = false});
  const auto skipped = std::make_shared<SkippedSamples>("training set", 0);
  Loader loader(images, {.size = 4, .order = Order::kSequential},
                {.batch_size = 4, .skipped = skipped});
  EXPECT_EQ(loader.next()->indices, (std::vector<std::int64_t>{0, 1, 2, 0}));
  EXPECT_EQ(skipped->count(), 1);
}

TEST_F(Pictures, FilesAreCheckedInTheConstructor) {
  const auto message = [&] { return error_of([&] { ImageFolder(folder.path(), {}); }); };
  folder.write("dog/e.jpg", "GIF89a");
  EXPECT_TRUE(
      contains(message(), "dog/e.jpg: byte 0: expected the signature of a PNG or JPEG file"));
  folder.write("dog/e.jpg", "");
  EXPECT_TRUE(contains(message(), "dog/e.jpg: is empty"));
  std::filesystem::remove(folder / "dog/e.jpg");
  std::filesystem::create_directory(folder / "elk");
  EXPECT_TRUE(contains(message(), "elk: has no images"));
  folder.write("elk/e.webp", "");
  EXPECT_TRUE(contains(message(), "elk: has no images"));
  EXPECT_TRUE(
      contains(error_of([&] { ImageFolder(folder / "none", {}); }), "none: is not a folder"));
}

std::string text_between(const std::string& path, const std::string& begin,
                         const std::string& end) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const std::string all = text.str();
  const auto from = all.find(begin) + begin.size();
  return all.substr(from, all.find(end, from) - from);
}

TEST(OwnDataset, TrainsFromTenLines) {
  const Squares squares;
  Loader loader(squares, {.size = squares.size(), .order = Order::kSequential}, {.batch_size = 4});
  EXPECT_EQ(values<float>(loader.next()->targets), (std::vector<float>{0, 1, 4, 9}));
}

TEST(OwnDataset, IsTheOneThatTheDocumentationShows) {
  const std::string code =
      text_between(in_source("tests/support/own_dataset.h"), "// begin\n", "// end");
  const std::string page =
      text_between(in_source("docs/use/data.md"), "## A data set of your own", "\n## ");
  EXPECT_TRUE(contains(page, code));
}

}  // namespace
}  // namespace torchbridge::train
