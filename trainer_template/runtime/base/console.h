// Output for the user: messages of one line each, a progress line, and errors of stdout.
#pragma once

#include <string>

namespace torchbridge::train {

// The name of the executable, such as "trainer". Every message begins with it.
std::string program_name();

// Prints "PROGRAM: TEXT" and a line end to stderr. Any thread.
void print_message(const std::string& text);

// The error by which this rank ends: prints it as the message "rank R: TEXT", and writes it to
// TORCHELASTIC_ERROR_FILE if that was asked for (record_failures). Any thread.
void print_error(int rank, const std::string& text);

// Whether stdout is forwarded to a terminal of the parent process: mpirun gives rank 0 a
// pseudo-terminal, and forwards its output and stderr to the terminal of mpirun.
bool is_forwarded_to_terminal();

// The width of the terminal that shows stdout; 80 if it is not known.
int terminal_columns();

// Replaces the progress line on stdout, or on stderr if a launcher forwards both to one terminal.
// Any thread.
void draw_line(const std::string& text);
// Ends the progress line, if there is one, before other output to stdout. A forwarded one is
// erased.
void end_drawn_line();
// The same before a message on stderr; print_message() calls it. Safe in a signal handler.
void end_drawn_line_for_message();

// Throws TrainError if any output to stdout so far could not be written.
void flush_stdout();

}  // namespace torchbridge::train
