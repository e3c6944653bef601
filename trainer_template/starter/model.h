// The model that is trained.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <torchbridge/task.h>

struct ImageShape {
  std::int64_t rows = 0, columns = 0, classes = 0;
};

// What --model may be, for --help, and what it is by default.
extern const char* const kModels;
extern const char* const kDefaultModel;

// Throws torchbridge::train::TrainError, which shows `spec`, for a --model that cannot be.
void check_model(const std::string& spec);

// Images come as [samples, rows * columns], pixels from 0 to 1; scores of the classes go out as [samples, classes].
std::shared_ptr<torchbridge::train::Model> make_model(const std::string& spec, const ImageShape& shape);
