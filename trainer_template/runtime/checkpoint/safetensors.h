// Tensors in files of the public safetensors format, which Python's safetensors package reads and
// writes as well.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include <torchbridge/formats.h>
#include <torchbridge/model_tensors.h>

#include "trainer_template/runtime/checkpoint_format/file_layer.h"
#include "trainer_template/runtime/checkpoint_format/manifest.h"
#include "trainer_template/runtime/formats/file_image.h"

namespace torchbridge::train {

// Writes a new file, synced. Tensors must be on the CPU and of a type in safetensors_header.h.
FileRecord write_safetensors(FileLayer& files, const std::filesystem::path& path,
                             const NamedTensors& tensors,
                             const std::map<std::string, std::string>& metadata = {});

// The layout of such a file: the order of its tensors, and its header for the tensors `ordered`.
// Files of equal tensors are equal.
NamedTensors in_file_order(const NamedTensors& tensors);
std::string header_for(const NamedTensors& ordered,
                       const std::map<std::string, std::string>& metadata = {{"format", "pt"}});

// All tensors of the file in the order of their bytes, then those that its metadata lists as
// another name of one (as safetensors.torch.save_model writes it), which share its memory. The
// tensors are in the mapped file: they must not be written to. Throws TrainError, which names the
// file and the error.
NamedTensors read_safetensors(const std::filesystem::path& path, Links links = Links::kFollowed);
// The same from an image of the file. The tensors are in the image and keep it alive; they may be
// written to.
NamedTensors read_safetensors(const std::shared_ptr<FileImage>& image,
                              const std::filesystem::path& path);

// Copies `from` into the tensors of `into` of the same name. Throws TrainError and changes nothing
// if a name is missing or unknown, or if shapes or types differ. `what` is the file or checkpoint
// of `from`, for the message.
void copy_tensors(const NamedTensors& from, const NamedTensors& into, const std::string& what);

}  // namespace torchbridge::train
