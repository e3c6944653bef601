// Samples per second that the loader gives: loader_speed FOLDER BATCH_SIZE WORKERS SECONDS. FOLDER
// holds MNIST's IDX files.
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include <torchbridge/data.h>

using namespace torchbridge::train;

int main(int argc, char** argv) {
  if (argc != 5)
    return std::fprintf(stderr, "loader_speed: expected FOLDER BATCH_SIZE WORKERS SECONDS\n"), 2;
  const torchbridge::train::IdxDataset images(argv[1], "train");
  const std::chrono::duration<double> length(std::atof(argv[4]));
  Loader loader(images, {.size = images.size()},
                {.batch_size = std::atoll(argv[2]),
                 .workers = std::atoi(argv[3]),
                 .batches_ahead = 8,
                 .epochs = 1'000'000});
  loader.next();  // makes the order of the first epoch
  const auto begin = std::chrono::steady_clock::now();
  std::chrono::duration<double> time{};
  std::int64_t samples = 0;
  for (; time < length; time = std::chrono::steady_clock::now() - begin)
    samples += loader.next()->samples();
  std::printf("%.0f\n", static_cast<double>(samples) / time.count());
}
