// Data sets, the order of samples, and the loader, whose threads make batches ahead of time.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <torchbridge/errors.h>
#include <torchbridge/formats.h>
#include <torchbridge/sampler.h>

namespace torchbridge::train {

class SkippedSamples;  // what --skip-unreadable leaves out

// The first dimension of each tensor is the samples': the loader throws TrainError for another.
struct Batch {
  at::Tensor inputs, targets;               // one of them may be undefined
  std::map<std::string, at::Tensor> named;  // more of both: a mask, a second target
  std::int64_t epoch = 0;
  SamplerPosition next;               // of the first sample after this batch of all ranks
  std::vector<std::int64_t> indices;  // of its samples in the data set; the loader fills it in
  double waited_s = 0;                // seconds that Loader::next() took for it

  std::int64_t samples() const { return (targets.defined() ? targets : inputs).size(0); }
  // One of `named`. Throws TrainError, which lists them, for another name.
  const at::Tensor& operator[](const std::string& name) const;
  // All that are defined.
  std::vector<at::Tensor*> tensors();
};

// The tensor of this name. Throws TrainError for another one: "WHAT has no tensor 'NAME', only
// ...".
const at::Tensor& tensor_named(const std::string& name,
                               const std::map<std::string, at::Tensor>& named,
                               const std::string& what);

class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  // Inputs and targets of these samples, each kind in one new tensor (batch_tensor). Called by
  // several threads at once. May throw: the loader finds the sample that fails.
  virtual Batch collate(std::span<const std::int64_t> indices) const = 0;
  // The bytes that its samples are made of, in pieces that stay unchanged while it lives. A
  // checkpoint holds a fingerprint of them, so that training does not resume within an epoch of
  // other data. No pieces: no fingerprint.
  virtual std::vector<std::span<const std::byte>> contents() const { return {}; }
  // The names of the classes, in the order of their numbers; empty: they have none. A run has the
  // same ones in training, evaluation, --resume and --predict.
  virtual std::vector<std::string> class_names() const { return {}; }
  // The same for the columns of a table.
  virtual std::vector<std::string> column_names() const { return {}; }
  // What the user should know about its files: open_task() prints it on rank 0. Empty: nothing.
  virtual std::string note() const { return {}; }
};

// A new tensor on the CPU for a batch: in pinned memory where the loader will copy it to a GPU.
at::Tensor batch_tensor(at::IntArrayRef sizes, at::ScalarType type);

// Changes a batch that is still on the CPU, on the thread that made it: augmentation,
// normalisation. seeds[i] is for sample i and depends on the run's seed, the epoch and the sample's
// index alone, so that the number of workers and of ranks, the batch size and a restart change
// nothing. Random numbers must come from seeds[i]: the global generators belong to the thread that
// trains.
using BatchTransform = std::function<void(Batch& batch, std::span<const std::uint64_t> seeds)>;

struct LoaderOptions {
  std::int64_t batch_size = 32;  // of each rank; the last batch of an epoch may be smaller
  bool drop_last = false;        // drop that smaller batch
  int workers = 1;               // threads; 0: batches are made by next() itself
  int batches_ahead = 4;         // at most so many are made before next() takes them
  std::int64_t epochs = 1;
  std::int64_t max_batches = -1;  // at most so many from the start position on; -1: no limit
  BatchTransform transform;       // called by several threads at once
  // Where batches go; a GPU: through pinned memory, on streams of the workers.
  c10::Device device = c10::kCPU;
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // for one batch
  // Set: a sample that cannot be collated alone is left out and added here. The next one of its
  // batch that can be (at the end, the first) takes its place, so that batches are as large on all
  // ranks. Only a batch without a readable sample is an error.
  std::shared_ptr<SkippedSamples> skipped;
};

// Number of batches that each rank gets from `start` on.
std::int64_t batches_left(const SamplerOptions& sampler, const LoaderOptions& options,
                          SamplerPosition start);

// Number of optimizer steps of `batches_a_step` batches, or fewer at the end of an epoch, from
// `start` on; max_batches is ignored.
std::int64_t steps_left(const SamplerOptions& sampler, LoaderOptions options, SamplerPosition start,
                        std::int64_t batches_a_step);

// Collating this sample alone failed. what() is "sample INDEX: REASON"; the original exception is
// nested in it.
struct SampleError : TrainError {
  SampleError(std::int64_t sample, const std::string& reason)
      : TrainError("sample " + std::to_string(sample) + ": " + reason), index(sample) {}
  std::int64_t index;
};

// For one thread. The data set must outlive it.
class Loader {
 public:
  // `start` may be within an epoch. Throws TrainError when an epoch has no batch for a rank, for
  // impossible options, and when the system starts no more threads.
  Loader(const Dataset& dataset, const SamplerOptions& sampler, const LoaderOptions& options,
         SamplerPosition start = {});
  // Waits for the batch that each worker is making, at most.
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  // The batches in order, then nothing. The tensors are those that Dataset::collate made, not
  // copies, unless they were copied to a GPU. Throws SampleError for a sample for which
  // Dataset::collate threw, TrainError for a batch that fails as a whole; the next call then
  // returns the next batch. Throws TrainError also for a batch that is not made within
  // options.timeout; the next call then waits for it again. Throws c10::AcceleratorError where the
  // device is broken.
  std::optional<Batch> next();

  // The batches of one optimizer step: `batches` of them, or fewer where an epoch ends, because an
  // epoch's last step is never filled up with samples of the next one; none at the end. Throws as
  // next() does.
  std::vector<Batch> next_step(std::int64_t batches);

  // Of next_step(), from here on.
  std::int64_t steps_left(std::int64_t batches_a_step) const;

  // Whether next() would return the next `count` batches without a wait, where so many are made
  // ahead. Waits for that, at most `time`. Also true after the timeout of a batch: next() throws
  // the error.
  bool is_ready(std::int64_t count, std::chrono::milliseconds time);

  // Whether next_step(count) would throw, by a batch that is made already.
  bool fails(std::int64_t count);

  // For a checkpoint: the position after the last batch that next() returned. Batches made ahead do
  // not count.
  SamplerPosition position() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

enum class TargetKind { kNumber, kClass };  // a double; a class number from 0 on

struct TableOptions {
  CsvOptions csv;
  std::string target;  // name of the column; empty: the last one
  TargetKind kind = TargetKind::kNumber;
};

// A table of numbers as a data set: one column is the target, the others are the inputs. inputs:
// [samples, columns - 1] double, in the file's order of columns. targets: [samples] double, or
// int64 for classes. A model rounds them to float after it has subtracted the mean: a time in
// milliseconds is a float only to within two minutes.
class Table : public Dataset {
 public:
  // Reads the file into memory, 8 bytes a number. Throws TrainError, which names the file, and line
  // and column where there is one.
  Table(const std::filesystem::path& path, const TableOptions& options);

  std::int64_t size() const override { return table_.rows; }
  std::int64_t features() const { return table_.columns - 1; }
  // All names in the file's order, the target's too; empty without a header.
  std::vector<std::string> column_names() const override { return table_.names; }
  std::int64_t classes() const { return classes_; }  // highest class + 1; 0 for numbers
  Batch collate(std::span<const std::int64_t> indices) const override;
  // The numbers, and which column is the target.
  std::vector<std::span<const std::byte>> contents() const override {
    return {std::as_bytes(std::span(table_.values)), std::as_bytes(std::span(&target_, 1))};
  }

 private:
  void count_classes(const std::filesystem::path& path);
  double target_of(std::int64_t row) const { return table_.values[row * table_.columns + target_]; }

  NumberTable table_;
  std::int64_t target_ = 0, classes_ = 0;
  const TargetKind kind_;
};

// MNIST's files as a data set. inputs: [samples, rows * columns] float from 0 to 1; targets:
// [samples] int64, the class.
class IdxDataset : public Dataset {
 public:
  // `split` is "train" or "t10k", as in the files' names. Throws TrainError, which names the file.
  IdxDataset(const std::filesystem::path& folder, const std::string& split)
      : images_(read_idx_images(folder, split)) {}

  const IdxImages& images() const { return images_; }
  std::int64_t size() const override { return images_.count; }
  Batch collate(std::span<const std::int64_t> indices) const override;
  std::vector<std::span<const std::byte>> contents() const override {
    return {std::as_bytes(std::span(images_.pixels)), std::as_bytes(std::span(images_.labels))};
  }

 private:
  IdxImages images_;
};

struct ImageFolderOptions {
  // Images of another size are resized: bilinear, with antialiasing.
  std::int64_t height = 224, width = 224;
  // False: only collate() finds what is no image (LoaderOptions::skipped).
  bool check_headers = true;
  // The names of the classes, in the order of their numbers: class_names() of the training set, for
  // an evaluation set, which may lack some of them. Empty: the names of the folders.
  std::vector<std::string> classes = {};
};

// A folder of labelled images: one folder a class, as torchvision's ImageFolder reads it. inputs:
// [samples, 3, height, width] float from 0 to 1; targets: [samples] int64, the class. Classes are
// numbered in the alphabetical order of their folders' names, images in torchvision's: by folder
// within the class, then by name. Links are followed. Images are decoded in collate().
class ImageFolder : public Dataset {
 public:
  // Reads the header of every file, unless options.check_headers is false. Throws TrainError, which
  // names the file or folder: no classes, a class without images, one that is not in
  // options.classes, an image that does not begin like a PNG or JPEG file. Names that begin with a
  // dot are ignored; other files that are not .png, .jpg or .jpeg are passed over: note() counts
  // them.
  ImageFolder(const std::filesystem::path& folder, const ImageFolderOptions& options);

  std::int64_t size() const override { return std::ssize(images_); }
  std::vector<std::string> class_names() const override { return classes_; }
  std::string note() const override;
  Batch collate(std::span<const std::int64_t> indices) const override;
  // Names and sizes of the files: to read them all would take too long.
  std::vector<std::span<const std::byte>> contents() const override {
    return {std::as_bytes(std::span(listing_))};
  }

 private:
  struct Labelled {
    std::filesystem::path path;
    std::int64_t label = 0;
  };

  void read_class(const std::filesystem::path& folder, std::int64_t label);
  void pass_over(const std::filesystem::path& file);

  const ImageFolderOptions options_;
  std::vector<std::string> classes_;
  std::vector<Labelled> images_;
  std::string listing_;  // "cat/7.png 1234\n" ...
  std::int64_t passed_over_ = 0;
  std::filesystem::path first_passed_over_;
};

// A part of the file, as fractions of its length.
struct TextPart {
  double begin = 0, end = 1;
  std::string_view use = {};  // "training"; empty: no message names it
};

// Windows of consecutive bytes of a text, for a language model whose tokens are bytes. inputs and
// targets: [samples, length] int64, from 0 to 255; each byte's target is the byte after it. Windows
// begin `length` bytes apart; a rest at the end that is shorter than a window is not used. The file
// stays mapped.
class TextWindows : public Dataset {
 public:
  // Throws TrainError, which names the file: one that cannot be read, is empty, compressed or in
  // UTF-16, or whose part is shorter than a window and its target.
  TextWindows(const std::filesystem::path& path, std::int64_t length, TextPart part = {});

  std::int64_t size() const override { return (std::ssize(bytes_) - 1) / length_; }
  Batch collate(std::span<const std::int64_t> indices) const override;
  std::vector<std::span<const std::byte>> contents() const override {
    return {std::as_bytes(bytes_)};
  }

 private:
  MappedFile file_;
  std::span<const std::uint8_t> bytes_;  // of the part
  std::int64_t length_;
};

struct TokenWindowsOptions {
  std::int64_t length = 1024;  // tokens of a sample
  // From one sample's first token to the next one's; 0: length, so that they do not overlap.
  std::int64_t stride = 0;
  std::int64_t vocabulary = 65536;  // tokens are below it
  TokenFormat format = TokenFormat::kAuto;
};

// Windows of consecutive tokens for a language model: each token's target is the token after it.
// inputs and targets: [samples, length] int64. Windows do not reach from one file into the next; a
// rest at the end of a file that is shorter than a window is not used.
class TokenWindows : public Dataset {
 public:
  // Throws TrainError, which names the file: one that cannot be read, is not a token file, or is
  // shorter than a window.
  TokenWindows(const std::vector<std::filesystem::path>& files, const TokenWindowsOptions& options);

  std::int64_t size() const override { return first_of_file_.back(); }
  // Throws TrainError for a token outside of the vocabulary, with file and offset: there are too
  // many to check all in the constructor.
  Batch collate(std::span<const std::int64_t> indices) const override;
  std::vector<std::span<const std::byte>> contents() const override;  // the tokens of each file

 private:
  // Copies a window and the token after it.
  void copy(std::int64_t index, std::int64_t* inputs, std::int64_t* targets) const;

  TokenWindowsOptions options_;
  std::vector<TokenFile> files_;
  // The first sample of each file; last, the number of all samples.
  std::vector<std::int64_t> first_of_file_;
};

}  // namespace torchbridge::train
