// Prints what each case on standard input gives, one line a case, as
// tests/reference/lr_schedule_reference.py does with Python's.
#include <cstdio>
#include <iostream>
#include <sstream>
#include <string>

#include <torchbridge/lr_schedule.h>

#include "trainer_template/runtime/optim/plateau.h"

using namespace torchbridge::train;

// SCHEDULE BASE TOTAL WARMUP, or for plateau SCHEDULE BASE and what is measured.
int main() {
  for (std::string line; std::getline(std::cin, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream words(line);
    std::string text;
    double base = 0;
    words >> text >> base;
    const auto schedule = parse_lr_schedule(text);
    if (!schedule) {
      std::fprintf(stderr, "%s\n", schedule.error().message.c_str());
      return 1;
    }
    std::printf("%s", line.c_str());
    LrSchedule run = *schedule;
    if (is_plateau(run)) {
      Plateau plateau(run, {base});
      for (std::string value; words >> value;) {
        plateau.observe(std::stod(value));
        std::printf(" %.17g", plateau.learning_rates()[0]);
      }
    } else {
      words >> run.total_steps >> run.warmup_steps;
      for (std::int64_t step = 1; step <= run.total_steps; ++step) {
        std::printf(" %.17g", learning_rate(run, base, step));
        if (const auto momentum = cycled_momentum(run, step)) std::printf("/%.17g", *momentum);
      }
    }
    std::printf("\n");
  }
}
