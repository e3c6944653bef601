// Runs python -m torchbridge.convert.
#pragma once

#include <chrono>
#include <sstream>
#include <string>

#include "tests/support/paths.h"
#include "tests/support/ranks.h"

// What it prints in `folder` for each of these command lines ("a.pt a.safetensors"), its errors
// included. One Python converts all, because one that imports torch takes seconds.
inline std::string converted(const TemporaryFolder& folder, const Words& command_lines) {
  static int calls = 0;  // Process appends to its files
  Words command = {python(), "-c",
                   "import os, sys; from torchbridge.convert import main; os.chdir(sys.argv[1])\n"
                   "for words in sys.argv[2:]:\n"
                   "    try: main(words.split())\n"
                   "    except SystemExit as end: print(end)\n",
                   folder.path()};
  command.insert(command.end(), command_lines.begin(), command_lines.end());
  Process process(command, {{"PYTHONPATH", in_build("python")}},
                  folder / ("convert-" + std::to_string(++calls)));
  EXPECT_EQ(process.wait(std::chrono::seconds(150)), 0);
  std::istringstream notes(process.error());
  for (std::string note; std::getline(notes, note);)
    EXPECT_TRUE(contains(note, ".pt has no epoch: the data begin at epoch 0 after step ")) << note;
  const std::string out = process.out();
  EXPECT_EQ(lines_in(out), static_cast<int>(command_lines.size())) << out;
  return out;
}
