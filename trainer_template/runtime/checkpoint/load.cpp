#include <torchbridge/train/checkpoint/load.h>

#include <torchbridge/train/checkpoint/checkpoint_files.h>
#include <torchbridge/train/checkpoint/generators.h>
#include <torchbridge/train/checkpoint/safetensors.h>
#include <torchbridge/train/checkpoint/tied_weights.h>
#include <torchbridge/train/checkpoint/torch_file.h>
#include <torchbridge/train/optim/state_pieces.h>

namespace torchbridge::train {

void load_checkpoint(const Choice& checkpoint, const ModelTensors& model, Optimizer& optimizer, ProcessGroup& group) {
  const auto& [folder, manifest] = checkpoint;
  all_or_none(group, [&] {
    const std::string what = "checkpoint " + folder.string();
    copy_tensors(without_aliases(read_safetensors(folder / kModelFile, Links::kRefused), model, what), model.all(), what);
    StatePieces state(optimizer.ranges());
    for (const FileRecord& file : manifest.files) {
      if (is_optimizer_file(file.name)) state.add(read_safetensors(folder / file.name, Links::kRefused));
    }
    optimizer.load_state(state.take());
    // The generators of a run of another size are not those of these ranks.
    if (manifest.world_size != group.world_size()) return;
    restore_generators(read_safetensors(folder / rank_file(group.rank()), Links::kRefused), group.device());
  });
}

void init_from(const std::filesystem::path& file, const ModelTensors& model, ProcessGroup& group) {
  all_or_none(group, [&] {
    const NamedTensors weights = is_torch_file(file) ? TorchFile(file).state_dict() : read_safetensors(file);
    copy_tensors(without_aliases(weights, model, file.string()), model.all(), file.string());
  });
}

}  // namespace torchbridge::train
