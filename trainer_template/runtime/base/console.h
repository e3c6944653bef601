// What the user sees: messages, each in a line of its own, and whether the output was lost.
#pragma once

#include <string>

namespace torchbridge::train {

// "trainer", "row_reader": the file that runs. Lines for the user begin with it.
std::string program_name();

// "PROGRAM: TEXT" and the line's end, on stderr. Any thread.
void say(const std::string& text);

// Whether what is drawn on stdout shows on a terminal that this process does not have itself: mpirun gives rank 0 a
// terminal of its own, and hands on what comes there, and stderr, to its own.
bool is_forwarded_to_terminal();

// Draws the line of stdout anew, which a progress bar has for itself. Any thread.
void draw_line(const std::string& text);
// Ends that line, if it is drawn, before something else is printed to stdout.
void end_drawn_line();
// The same before a message on stderr, as say() does. Also in a signal handler.
void end_drawn_line_for_message();

// Throws TrainError where something printed to stdout so far could not be written.
void flush_stdout();

}  // namespace torchbridge::train
