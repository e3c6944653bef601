// Names of the same options in other trainers: the error for an unknown option suggests ours.
#pragma once

#include "bridge/program/program.h"

namespace torchbridge::train {

inline constexpr OptionSuggestion kSuggestedOptions[] = {
    // nanoGPT
    {"learning-rate", "lr"},
    {"max-iters", "max-steps"},
    {"warmup-iters", "warmup-steps"},
    {"lr-decay-iters", "lr-schedule"},
    {"decay-lr", "lr-schedule"},
    {"min-lr", "lr-schedule"},
    {"grad-clip", "clip-norm"},
    {"log-interval", "log-every"},
    {"save-interval", "checkpoint-every"},
    {"gradient-accumulation-steps", "grad-accumulation"},
    {"eval-interval", "eval-every"},
    {"eval-iters", "eval-every"},
    {"out-dir", "checkpoint-dir"},
    {"dataset", "data"},
    {"dtype", "precision"},
    {"block-size", "model"},
    {"n-layer", "model"},
    {"n-head", "model"},
    {"n-embd", "model"},
    {"dropout", "model"},
    {"start", "generate"},
    {"max-new-tokens", "generate-length"},
    // torchtitan, whose options are in sections
    {"training.steps", "max-steps"},
    {"local-batch-size", "batch-size"},
    {"seq-len", "model"},
    {"max-norm", "clip-norm"},
    {"mixed-precision-param", "precision"},
    {"optimizer.name", "optimizer"},
    {"decay-type", "lr-schedule"},
    {"lr-min", "lr-schedule"},
    {"model.name", "task"},
    {"model.flavor", "model"},
    {"validation.freq", "eval-every"},
    {"checkpoint.folder", "checkpoint-dir"},
    {"checkpoint.interval", "checkpoint-every"},
    {"checkpoint.load-step", "resume"},
    {"keep-latest-k", "keep"},
    {"async-mode", "async-save"},
    {"initial-load-path", "init-from"},
    {"enable-tensorboard", "tensorboard"},
    {"metrics.log-freq", "log-every"},
    {"enable-profiling", "profile"},
    {"config-file", "config"},
    // earlier versions of this one
    {"heartbeat", "heartbeat-timeout"},
    {"ledger", "sample-log"},
    {"save-busy", "on-pending-save"},
    {"resume-from-python", "resume"},
    // transformers.Trainer and torchvision's references
    {"num-train-epochs", "epochs"},
    {"num-epochs", "epochs"},
    {"patience", "early-stop"},
    {"per-device-train-batch-size", "batch-size"},
    {"max-grad-norm", "clip-norm"},
    {"lr-scheduler-type", "lr-schedule"},
    {"output-dir", "checkpoint-dir"},
    {"save-steps", "checkpoint-every"},
    {"save-every", "checkpoint-every"},
    {"save-total-limit", "keep"},
    {"eval-steps", "eval-every"},
    {"resume-from-checkpoint", "resume"},
    {"bf16", "precision"},
    {"fp16", "precision"},
    {"tf32", "fp32-precision"},
    {"logging-steps", "log-every"},
    {"num-workers", "workers"},
};

}  // namespace torchbridge::train
