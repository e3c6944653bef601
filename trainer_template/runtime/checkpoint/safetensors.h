// Tensors in files of the public safetensors format, which Python's safetensors package reads and writes as well.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "trainer_template/runtime/base/file_image.h"
#include "trainer_template/runtime/base/file_layer.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"
#include "trainer_template/runtime/base/mapped_file.h"
#include "trainer_template/runtime/tensors/named_tensors.h"

namespace torchbridge::train {

// Writes a new file, synced. Tensors must be on the CPU and of a type in safetensors_header.h.
FileRecord write_safetensors(FileLayer& files, const std::filesystem::path& path, const NamedTensors& tensors,
                             const std::map<std::string, std::string>& metadata = {});

// How such a file is laid out: the order of its tensors, and the bytes it starts with when it holds `ordered`. Two
// files of equal tensors are equal.
NamedTensors in_file_order(const NamedTensors& tensors);
std::string header_for(const NamedTensors& ordered,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// All tensors of the file, in the order of their bytes, then those that its metadata names as another name of one (as
// safetensors.torch.save_model writes it), sharing its memory. They lie in the mapped file: copy them, but do not write
// to them. Throws TrainError, which names the file and what is wrong with it.
NamedTensors read_safetensors(const std::filesystem::path& path, Links links = Links::kFollowed);
// The same of an image of the file, in which the tensors lie: they may be written to, and keep it.
NamedTensors read_safetensors(const std::shared_ptr<FileImage>& image, const std::filesystem::path& path);

// Copies `from` into the tensors of `into` of the same name. Throws TrainError when a name is missing or not known, or
// when shapes or types differ; it says that `what` (a file) has them, and changes nothing then.
void copy_tensors(const NamedTensors& from, const NamedTensors& into, const std::string& what);

}  // namespace torchbridge::train
