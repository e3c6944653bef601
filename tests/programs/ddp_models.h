// The models that our ranks and Python's (tests/reference/ddp_cases.py) train on digits, with the
// same names of parameters.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <torch/nn/module.h>
#include <torchbridge/ddp.h>

// What a step gives to the model. Pixels are (N, 8, 8) of uint8.
struct StepInputs {
  at::Tensor pixels, targets;
  bool with_branch = false, all_outputs = false;  // of the model "branches"
};

struct CaseModel {
  torchbridge::train::ModelTensors tensors;
  // Forward pass through DDP and the mean loss.
  std::function<at::Tensor(torchbridge::train::DistributedDataParallel&, const StepInputs&)> loss;
  std::shared_ptr<void> module;
};

// kind is mlp, cnn, embedding, sparse_embedding, branches, shared, frozen, or jit:FILE. Throws
// TrainError for another.
CaseModel make_case_model(const std::string& kind);
