// The model that is trained.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <torchbridge/task.h>

struct ImageShape {
  std::int64_t rows = 0, columns = 0, classes = 0;
};

// The valid values of --model, for --help, and its default.
extern const char* const kModels;
extern const char* const kDefaultModel;

// Throws torchbridge::train::TrainError, which contains `spec`, for an invalid --model.
void check_model(const std::string& spec);

// The model's inputs are images [samples, rows * columns] with pixels from 0 to 1; its outputs are
// scores [samples, classes].
std::shared_ptr<torchbridge::train::Model> make_model(const std::string& spec,
                                                      const ImageShape& shape);
