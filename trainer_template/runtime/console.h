// What the user sees: messages, each in a line of its own, and whether the output was lost.
#pragma once

#include <string>

namespace torchbridge::train {

// "trainer: TEXT" and the line's end, on stderr. Any thread.
void say(const std::string& text);

// Draws the line of stdout anew, which a progress bar has for itself. Any thread.
void draw_line(const std::string& text);
// Ends that line, if it is drawn, as say() does first. Also in a signal handler.
void end_drawn_line();

// Throws TrainError where something printed to stdout so far could not be written.
void flush_stdout();

}  // namespace torchbridge::train
