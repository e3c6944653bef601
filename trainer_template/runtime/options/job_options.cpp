// The options of a job other than its training: checkpoints, stopping, output, inference, and the
// system it runs on.
#include <torchbridge/option_table.h>
#include <torchbridge/options.h>

#include "trainer_template/runtime/options/declare_options.h"

namespace torchbridge::train {
namespace {

void declare_checkpoints(OptionTable& table, Options& o) {
  table.begin_group("Checkpoints");
  auto& c = o.checkpoints;
  table.add("--checkpoint-dir", &c.folder,
            "Folder for checkpoints, shared by all nodes; without it nothing is saved",
            {.on_ranks = OnRanks::kGiven, .check = not_empty});
  table.add("--checkpoint-every", &c.every, "Steps between checkpoints; 0: only at the end",
            {.check = at_least(0)});
  table.add("--keep", &c.keep, "Number of newest checkpoints to keep",
            {.on_ranks = OnRanks::kRankZero, .check = whole_between(1, 1'000'000)});
  table.add("--keep-every", &c.keep_every,
            "Steps: checkpoints at multiples of it are never removed; 0: none",
            {.on_ranks = OnRanks::kRankZero, .check = at_least(0)});
  table.add("--async-save", &c.async,
            "Write checkpoints from a copy in memory while training continues");
  table.add("--on-pending-save", &o.on_pending_save,
            "If the previous checkpoint is still being written: wait, or skip this one");
  table.add("--save-mb-per-s", &o.save_mb_per_s,
            "Limit for writing checkpoints, in MB/s a rank; 0: no limit",
            {.on_ranks = OnRanks::kOwn, .check = not_negative});
  table.add(
      "--resume", &c.resume,
      "Checkpoint to resume from: auto (the newest valid one in --checkpoint-dir), none, or a path",
      {.text = [&c] { return c.resume == "auto" || c.resume == "none" ? c.resume : "a path"; }});
}

void declare_stopping(OptionTable& table, Options& o) {
  table.begin_group(
      "Stopping: SIGTERM, SIGUSR1, SIGUSR2, SIGINT and SIGHUP save, exit code 75 "
      "(docs/use/preemption.md)");
  constexpr std::int64_t kMost = 100'000'000;
  table.add("--grace", &o.grace_s,
            "Seconds from the signal until the launcher kills the process; 0: not known",
            {.on_ranks = OnRanks::kOwn, .check = whole_between(0, kMost)});
  table.add("--stop-before-limit", &o.stop_before_limit_s,
            "Stop so many seconds before the job's time limit, without a signal; 0: never",
            {.on_ranks = OnRanks::kOwn, .check = whole_between(0, kMost)});
}

void declare_output(OptionTable& table, Options& o) {
  table.begin_group("Output");
  table.add("--metrics", &o.metrics, "Write one JSON object a step to this file",
            {.on_ranks = OnRanks::kRankZero, .check = not_empty});
  table.add("--sample-log", &o.sample_log,
            "Write each step's samples, rank by rank, to this file (scripts/check_sample_log)",
            {.on_ranks = OnRanks::kRankZero, .check = not_empty});
  table.add("--tensorboard", &o.tensorboard, "Write TensorBoard's event files into this folder",
            {.on_ranks = OnRanks::kRankZero, .check = not_empty});
  table.add("--log-every", &o.log_every,
            "Write and show only steps at multiples of it, evaluated steps and the last one",
            {.on_ranks = OnRanks::kRankZero, .check = at_least(1)});
  table.add("--no-grad-norm", &o.no_grad_norm,
            "Do not measure the norm of the gradients, which takes a pass over all of them",
            {.on_ranks = OnRanks::kRankZero});
  table.add(
      "--peak-tflops", &o.peak_tflops,
      "Peak TFLOP/s of a rank's device, for a language model's utilization of it (MFU); 0: unknown",
      {.on_ranks = OnRanks::kRankZero,
       .check = not_negative,
       .if_not_set = "the GPU's, by its name"});
  table.add("--eval-every", &o.eval_every, "Steps between evaluations; 0: only at the end",
            {.is_shown = true, .check = at_least(0)});
  table.add("--compiled-eval", &o.compiled_eval,
            "Evaluate with this AOTInductor package (.pt2) and the weights of the model",
            {.on_ranks = OnRanks::kGiven, .check = existing_file});
  table.add("--profile", &o.profile,
            "Trace so many steps after the first ten (rank 0; Chrome's and Perfetto's format)",
            {.on_ranks = OnRanks::kRankZero, .check = at_least(0)});
  table.add("--profile-file", &o.profile_file, "File for the trace of --profile",
            {.on_ranks = OnRanks::kRankZero, .check = not_empty});
  table.add("--progress", &o.progress, "bar, lines, or auto: a bar on a terminal, else lines",
            {.on_ranks = OnRanks::kRankZero});
  table.add("--quiet", &o.quiet, "Print only the last line", {.on_ranks = OnRanks::kRankZero});
}

void declare_inference(OptionTable& table, Options& o) {
  table.begin_group(
      "Inference instead of training, with the weights of --init-from or of the newest checkpoint");
  table.add("--generate", &o.generate, "Continue this text", {.check = not_empty});
  table.add("--generate-length", &o.generate_length, "Tokens to generate",
            {.on_ranks = OnRanks::kRankZero, .check = at_least(1)});
  table.add("--temperature", &o.temperature,
            "Sampling temperature of --generate; 0: always the most likely token",
            {.on_ranks = OnRanks::kRankZero, .check = not_negative});
  table.add("--predict", &o.predict, "Print the model's prediction for this file",
            {.on_ranks = OnRanks::kGiven, .check = not_empty});
}

void declare_system(OptionTable& table, Options& o) {
  table.begin_group("System");
  table.add("--backend", &o.backend,
            "gloo, nccl, mpi, cpu:gloo,cuda:nccl or another one; auto: by --device, on the CPU "
            "gloo over shared memory",
            {.on_ranks = OnRanks::kAtJoin, .check = check_backend});
  table.add("--init-method", &o.init_method,
            "env://, tcp://HOST:PORT, file:///PATH, slurm://, mpi:// or pmix://; default: by the "
            "launcher",
            {.on_ranks = OnRanks::kOwn, .check = [&o](const std::string& url) {
               const auto method = parse_init_method(url);
               if (method) o.parsed_init_method = *method;
               return method ? "" : method.error().message;
             }});
  table.add("--device", &o.device,
            "cuda: the GPU of LOCAL_RANK, or the only visible one; auto: cuda with --backend nccl, "
            "and with auto where a GPU is visible; else cpu",
            {.on_ranks = OnRanks::kOwn, .is_shown = true});
  table.add("--workers", &o.workers, "Threads that prepare batches; 0: none",
            {.on_ranks = OnRanks::kOwn, .is_shown = true, .check = whole_between(0, 256)});
  table.add(
      "--heartbeat-timeout", &o.heartbeat_timeout_s,
      "Seconds without a heartbeat after which a rank is lost and the job ends; 0: no heartbeats",
      {.on_ranks = OnRanks::kRankZero, .check = number_between(0, 1e6)});
  table.add("--timeout", &o.timeout_s, "Timeout of a collective in seconds",
            {.on_ranks = OnRanks::kOwn, .check = number_between(1, 1e6)});
  table.add("--join-timeout", &o.join_timeout_s,
            "Timeout in seconds for all ranks to join, at most --timeout",
            {.on_ranks = OnRanks::kOwn,
             .check = number_between(1, 1e6),
             .if_not_set = "60, with a GPU 300"});
}

}  // namespace

void declare_job_options(OptionTable& table, Options& options) {
  declare_checkpoints(table, options);
  declare_stopping(table, options);
  declare_output(table, options);
  declare_inference(table, options);
  declare_system(table, options);
}

}  // namespace torchbridge::train
