// Tensors as bytes, for the conversion between formats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trainer_template/runtime/formats/pickle.h"
#include "trainer_template/runtime/formats/torch_archive.h"

// A contiguous little-endian tensor. The bytes are not owned.
struct TensorBytes {
  std::string name;
  std::string dtype;  // as in safetensors_header.h
  std::vector<std::int64_t> shape;
  std::string_view bytes;
};

// The tensors of an archive as contiguous bytes. Reads each storage once.
class ArchiveTensors {
 public:
  explicit ArchiveTensors(const torchbridge::train::TorchArchive& archive) : archive_(archive) {}
  // The bytes are valid as long as this object. Throws TrainError.
  TensorBytes contiguous(const std::string& name, const torchbridge::train::PickledTensor& tensor);

 private:
  const torchbridge::train::TorchArchive& archive_;
  std::map<std::string, std::string> storages_;
  std::vector<std::unique_ptr<std::string>> gathered_;
};

// Writes a new safetensors file, synced. Throws TrainError, also if the file exists.
void write_safetensors_file(const std::filesystem::path& path, std::vector<TensorBytes> tensors,
                            const std::map<std::string, std::string>& metadata);
