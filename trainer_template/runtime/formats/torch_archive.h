// The zip archive of torch.save: a pickle, and each storage as a record of bytes. Needs no libtorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "trainer_template/runtime/base/file_layer.h"
#include "trainer_template/runtime/formats/pickle.h"

namespace torchbridge::train {

// Whether torch.save is likely to have written the file: by its beginning, or by its name (.pt, .pth). Throws
// TrainError, which names it, where it is no regular file.
bool is_torch_file(const std::filesystem::path& path);

// One thread. Members throw TrainError, which names the file and what is wrong with it; checksums of records, which
// torch.load ignores, are compared by whatever reads them.
class TorchArchive {
 public:
  explicit TorchArchive(const std::filesystem::path& path);
  ~TorchArchive();
  TorchArchive(const TorchArchive&) = delete;
  TorchArchive& operator=(const TorchArchive&) = delete;

  const std::filesystem::path& path() const { return path_; }

  // What was saved, without the elements of tensors.
  Pickled content() const;

  // Bytes of the storage that a tensor of content() lies in; as many are in the archive, or it throws.
  std::uint64_t storage_bytes(const PickledTensor& tensor) const;
  void read_storage(const PickledTensor& tensor,
                    void* into) const;  // REQUIRES: there is room for storage_bytes(tensor)

 private:
  struct Zip;
  std::filesystem::path path_;
  std::unique_ptr<Zip> zip_;
};

// Writes a new file that torch.load(weights_only=True) reads, also mapped: `storages` are the bytes of each storage
// that `content` refers to. The same content gives the same bytes. Throws TrainError.
void write_torch_archive(FileLayer& files, const std::filesystem::path& path, const PickledValue& content,
                         const std::map<std::string, std::string_view>& storages);

}  // namespace torchbridge::train
