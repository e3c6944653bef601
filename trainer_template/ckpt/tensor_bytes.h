// Tensors as bytes: what is converted from one format to another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_template/runtime/formats/pickle.h"
#include "trainer_template/runtime/formats/torch_archive.h"

// Contiguous, little-endian. The bytes are another's.
struct TensorBytes {
  std::string name;
  std::string dtype;  // as in safetensors_header.h
  std::vector<std::int64_t> shape;
  std::string_view bytes;
};

// The storages of an archive that were read, and what was made contiguous of them.
class ArchiveTensors {
 public:
  explicit ArchiveTensors(const torchbridge::train::TorchArchive& archive) : archive_(archive) {}
  // The bytes live as long as this. Throws TrainError.
  TensorBytes contiguous(const std::string& name, const torchbridge::train::PickledTensor& tensor);

 private:
  const torchbridge::train::TorchArchive& archive_;
  std::map<std::string, std::string> storages_;
  std::vector<std::unique_ptr<std::string>> gathered_;
};

// A new safetensors file, synced. Throws TrainError where it exists.
void write_safetensors_file(const std::filesystem::path& path, std::vector<TensorBytes> tensors,
                            const std::map<std::string, std::string>& metadata);
