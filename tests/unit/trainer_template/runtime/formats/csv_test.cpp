#include "trainer_template/runtime/formats/csv.h"

#include "tests/support/temporary_folder.h"

namespace torchbridge::train {
namespace {

using Values = std::vector<double>;

TEST(Csv, ReadsNumbers) {
  const struct {
    std::string text;
    CsvOptions options;
    std::vector<std::string> names;
    Values values;
  } kCases[] = {
      {"a,b\n1,2\n3,4\n", {}, {"a", "b"}, {1, 2, 3, 4}},
      {"a,b\r\n1,2\r\n3,4", {}, {"a", "b"}, {1, 2, 3, 4}},
      {"a,b\n1,2\n3,4\n\n \n", {}, {"a", "b"}, {1, 2, 3, 4}},
      {"1,2\n3,4\n", {.header = false}, {}, {1, 2, 3, 4}},
      {"-1.5e3;+2\n.25;0x\n", {.separator = ';', .header = false}, {}, {}},
      {"-1.5e3;+2\n.25;1e-3\n", {.separator = ';', .header = false}, {}, {-1500, 2, .25, 1e-3}},
      {"1\t2\n3\t4\n", {.separator = '\t', .header = false}, {}, {1, 2, 3, 4}},
      {"\xef\xbb\xbf\"sepal, length\" , b\n\"1\", 2 \n 3,\"4\"\n",
       {},
       {"sepal, length", "b"},
       {1, 2, 3, 4}},
      {"1e-300,1e-400\n-0,1e99\n", {.header = false}, {}, {1e-300, 0, 0, 1e99}},
      {"0.1,1764140400123\n0,0\n", {.header = false}, {}, {0.1, 1764140400123, 0, 0}},
  };
  for (const auto& c : kCases) {
    const auto table = parse_csv(c.text, c.options);
    if (c.values.empty()) {
      EXPECT_FALSE(table) << c.text;
      continue;
    }
    ASSERT_TRUE(table) << c.text << table.error().message;
    EXPECT_EQ(table->names, c.names);
    EXPECT_EQ(table->values, c.values);
    EXPECT_EQ(table->columns, 2);
    EXPECT_EQ(table->rows, 2);
  }
}

TEST(Csv, NamesLineAndColumn) {
  const struct {
    std::string text, expected;
    bool header = true;
  } kCases[] = {
      {"a,b\n1,2\n3,x\n", "line 3, column 2 ('b'): 'x' is not a finite number"},
      {"a,b\n1,\n", "line 2, column 2 ('b'): the number is missing"},
      {"a,b\n1\n", "line 2, column 2 ('b'): the line ends, expected 2 fields"},
      {"a,b\n1,2,3\n", "line 2, column 3: expected 2 fields"},
      {"a,b\n1,2\n\n3,4\n", "line 3, column 1 ('a'): the number is missing"},
      {"a,b\n1,nan\n", "'nan' is not a finite number"},
      {"a,b\n1,inf\n", "'inf' is not a finite number"},
      {"a,b\n1,1e309\n", "'1e309' is not a finite number"},
      {"a,b\n1,-1e999\n", "'-1e999' is not a finite number"},
      {"a,b\n1,1,5\n", "line 2, column 3"},
      {"a,b\n1,+-1\n", "'+-1' is not a finite number"},
      {"a,b\n1,\"2\n", "line 2, column 2"},
      {"1,2\n3,4\n",
       "line 1, column 1: '1' is a number, expected a name; does the file have no header?"},
      {"a,\n1,2\n", "line 1, column 2: the name is missing"},
      {"a,a\n1,2\n", "line 1, column 2: 'a' is the name of two columns"},
      {"a,b\n", "has no rows of numbers"},
      {"", "has no rows of numbers"},
      {"\x1b[2J,b\n1,2\n3\n", "line 3, column 2 ('b')"},
      {"a,b\n1,\x1b[2J\n", "is not a finite number"},
      {"1,2\n3;4\n", "line 2, column 1: '3;4' is not a finite number", false},
      {"a;b\n1,5;2,5\n", "line 1: its fields are separated by ';', expected ',': convert the file"},
      {"a\tb\n1\t2\n", "line 1: its fields are separated by a tab, expected ','"},
      {"1 2 3\n4 5 6\n", "line 1: its fields are separated by a space, expected ','", false},
      {"a|b\n1|2\n", "line 1: its fields are separated by '|', expected ','"},
      {"a,b\r1,2\r3,4\r", "has lines that end with CR alone"},
      {"a,b\r1,2\r3,4\n", "has lines that end with CR alone"},
      {std::string("\xff\xfe"
                   "a\0,\0b\0\n\0",
                   10),
       "is UTF-16 text, or no text: save it as UTF-8"},
      {std::string("\xfe\xff\0a\0,\0b\0\n", 10), "is UTF-16 text"},
      {std::string("\xff\xfe\0\0a\0\0\0", 8), "is UTF-32 text: save it as UTF-8"},
      {std::string("\0\0\xfe\xff\0\0\0a", 8), "is UTF-32 text"},
      {"\x1f\x8b\x08 and more bytes", "is compressed by gzip: uncompress it with gunzip"},
      {std::string("a\0,\0b\0\n\0", 8), "is UTF-16 text"},
  };
  for (const auto& c : kCases) {
    const auto table = parse_csv(c.text, {.header = c.header});
    ASSERT_FALSE(table) << c.text;
    EXPECT_TRUE(contains(table.error().message, c.expected));
    EXPECT_EQ(table.error().message.find('\x1b'), std::string::npos)
        << "a message holds no control characters";
  }
}

TEST(Csv, NamesTheFile) {
  TemporaryFolder folder;
  folder.write("table.csv", "a,b\n1,x\n");
  EXPECT_EQ(
      error_of([&] { read_csv(folder / "table.csv"); }),
      (folder / "table.csv").string() + ": line 2, column 2 ('b'): 'x' is not a finite number");
  EXPECT_TRUE(contains(error_of([&] { read_csv(folder / "none.csv"); }),
                       "none.csv: cannot be opened: No such file"));
  EXPECT_TRUE(contains(error_of([&] { read_csv(folder.path()); }), "is not a regular file"));
  folder.write("empty.csv", "");
  EXPECT_TRUE(contains(error_of([&] { read_csv(folder / "empty.csv"); }), "empty.csv: is empty"));
}

}  // namespace
}  // namespace torchbridge::train
