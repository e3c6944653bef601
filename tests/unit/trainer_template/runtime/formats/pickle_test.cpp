// Pickles that Python writes, assembled from opcodes, and malformed ones.
#include "trainer_template/runtime/formats/pickle.h"

#include <gtest/gtest.h>

namespace torchbridge::train {
namespace {

using namespace std::string_literals;
using Kind = PickledValue::Kind;

// Protocol 2, its content, STOP.
std::string pickle(const std::string& content) { return "\x80\x02"s + content + "."; }

std::string text_opcode(const std::string& content) {
  return "X"s + static_cast<char>(content.size()) + "\0\0\0"s + content;
}

std::string global(const std::string& module, const std::string& name) { return "c" + module + "\n" + name + "\n"; }

std::string count(int number) { return "K"s + static_cast<char>(number); }

// torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, False, OrderedDict()) of a storage of six floats.
// `more`: the opcodes after it.
std::string tensor_opcodes(int offset, const std::string& shape, const std::string& strides,
                           const std::string& type = "FloatStorage", const std::string& more = "") {
  return global("torch._utils", "_rebuild_tensor_v2") + "((" + text_opcode("storage") + global("torch", type) +
         text_opcode("7") + text_opcode("cuda:0") + count(6) + "tQ" + count(offset) + shape + strides + "\x89" +
         global("collections", "OrderedDict") + ")R" + more + "tR";
}

std::string tensor_with(const std::string& more) { return tensor_opcodes(0, ")", ")", "FloatStorage", more); }

TEST(ParsePickle, ReadsPlainValues) {
  // pickle.dumps({'a': 1, 'b': [True, None, 2.5, -3, 70000, 2**40], 'c': ('x', 'y'), 3: {}}, 2)
  const auto value = parse_pickle(
      "\x80\x02}q\x00(X\x01\x00\x00\x00"s
      "aq\x01K\x01X\x01\x00\x00\x00"s
      "bq\x02]q\x03(\x88NG@\x04\x00\x00\x00\x00\x00\x00J\xfd\xff\xff\xff"s
      "Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01"s
      "eX\x01\x00\x00\x00"s
      "cq\x04X\x01\x00\x00\x00"s
      "xq\x05X\x01\x00\x00\x00yq\x06\x86q\x07K\x03}q\x08u."s);
  ASSERT_TRUE(value) << value.error().message;
  ASSERT_TRUE((*value)->is(Kind::kDict));
  EXPECT_EQ((*value)->find("a")->integer, 1);
  const auto& list = (*value)->find("b")->items;
  ASSERT_EQ(list.size(), 6u);
  EXPECT_EQ(list[0]->integer, 1);
  EXPECT_TRUE(list[1]->is(Kind::kNone));
  EXPECT_EQ(list[2]->number, 2.5);
  EXPECT_EQ(list[3]->integer, -3);
  EXPECT_EQ(list[4]->integer, 70000);
  EXPECT_EQ(list[5]->integer, std::int64_t{1} << 40);
  EXPECT_EQ((*value)->find("c")->items[1]->text, "y");
  EXPECT_EQ((*value)->items[6]->integer, 3);
  EXPECT_EQ((*value)->find("d"), nullptr);
}

TEST(ParsePickle, ReadsTensorsByReference) {
  const auto value =
      parse_pickle(pickle(tensor_opcodes(1, count(2) + count(2) + "\x86", count(3) + count(1) + "\x86")));
  ASSERT_TRUE(value) << value.error().message;
  ASSERT_TRUE((*value)->is(Kind::kTensor));
  const PickledTensor& found = (*value)->tensor;
  EXPECT_EQ(found.storage, "7");
  EXPECT_EQ(found.dtype, "F32");
  EXPECT_EQ(found.storage_size, 6);
  EXPECT_EQ(found.offset, 1);
  EXPECT_EQ(found.shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(found.strides, (std::vector<std::int64_t>{3, 1}));
}

TEST(ParsePickle, ReadsTensorsWithoutMetadata) {
  for (const char* metadata : {"N", "}"}) EXPECT_TRUE(parse_pickle(pickle(tensor_with(metadata)))) << metadata;
}

// A state_dict is an OrderedDict with an attribute.
TEST(ParsePickle, IgnoresAttributesOfAStateDict) {
  const auto value = parse_pickle(pickle(global("collections", "OrderedDict") + ")R(" + text_opcode("w") +
                                         tensor_opcodes(0, ")", ")") + "u}" + text_opcode("_metadata") +
                                         global("collections", "OrderedDict") + ")Rsb"));
  ASSERT_TRUE(value) << value.error().message;
  EXPECT_EQ((*value)->items.size(), 2u);
  EXPECT_TRUE((*value)->find("w")->is(Kind::kTensor));
}

TEST(ParsePickle, RejectsMalformedAndExecutablePickles) {
  const std::string square = count(3) + count(3) + "\x86", rows = count(3) + count(1) + "\x86";
  const struct {
    const char* what;
    std::string bytes;
    const char* message;
  } kCases[] = {
      {"nothing", "", "the pickle is truncated"},
      {"text", "hello", "expected pickle protocol 2"},
      {"protocol 4", "\x80\x04}."s,
       "pickle protocol 4 is not supported, only 2 is: call torch.save without pickle_protocol"},
      {"cut off in a number", "\x80\x02J\x01"s, "the pickle is truncated"},
      {"cut off in text",
       "\x80\x02X\xff\xff\xff\xff"s
       "a.",
       "the pickle is truncated"},
      {"cut off in a name",
       "\x80\x02"s
       "cos\nsys",
       "the pickle is truncated"},
      {"something after the end", pickle("N") + "N", "bytes follow the end of the pickle"},
      {"two values", pickle("NN"), "the pickle ends with 2 values and 0 open marks, expected one value"},
      {"a mark that stays open", pickle("(N"), "the pickle ends with 1 values and 1 open marks, expected one value"},
      {"a call of the system", pickle(global("posix", "system") + text_opcode("true") + "\x85R"),
       "class or function posix.system is not allowed: only plain values and tensors are read"},
      {"a control character", pickle(global("a\x1b", "b")), "class or function a\\x1b.b"},
      {"a class", pickle(global("collections", "OrderedDict") + "N\x81"), "opcode 129"},
      {"a call with arguments", pickle(global("collections", "OrderedDict") + "N\x85R"),
       "collections OrderedDict is called with arguments that torch.save does not write"},
      {"a call of a value", pickle("N)R"), "a value that is not a function is called"},
      {"a value from below the mark", pickle("N(\x85"), "an opcode uses a value that is not in it"},
      {"a memo entry that does not exist", pickle("h\x05"), "an opcode uses a value that is not in it"},
      {"a list inside itself",
       pickle("]q\x01h\x01"s
              "a"),
       "a value contains itself"},
      {"lists inside each other",
       pickle("]q\x01]q\x02h\x01"s
              "a0h\x01h\x02"s
              "a"),
       "opcode 48"},
      {"a change of what is part of another", pickle("]q\x01\x85h\x01Na\x86"s),
       "a value that is part of another value is changed"},
      {"a key without a value", pickle("}(Nu"), "a dictionary has a key without a value"},
      {"a tuple as a key", pickle("})Ns"), "a key of a dictionary is neither text nor an integer"},
      {"values put into a number", pickle("K\x01Na"), "items are added to a value that is not a list or dictionary"},
      {"another thing outside", pickle(text_opcode("x") + "Q"),
       "a persistent id does not name the storage of a tensor"},
      {"a type that is not read", pickle(tensor_opcodes(0, ")", ")", "ComplexFloatStorage")),
       "class or function torch.ComplexFloatStorage"},
      {"beyond the storage", pickle(tensor_opcodes(0, square, rows)), "a tensor reaches beyond its storage"},
      {"beyond the storage by its offset", pickle(tensor_opcodes(6, ")", ")")), "a tensor reaches beyond its storage"},
      {"shape and strides of two lengths", pickle(tensor_opcodes(0, square, ")")),
       "a tensor reaches beyond its storage"},
      {"an overflow",
       pickle(tensor_opcodes(0, "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85"s,
                             "\x8a\x08\xff\xff\xff\xff\xff\xff\xff\x7f\x85"s)),
       "a tensor reaches beyond its storage"},
      {"a negative shape", pickle(tensor_opcodes(0, "J\xff\xff\xff\xff\x85"s, count(1) + "\x85")),
       "the shape of a tensor is not a tuple of counts"},
      {"negated", pickle(tensor_with("}" + text_opcode("neg") + "\x88s")),
       "a tensor has metadata 'neg', which is not supported: save tensor.resolve_neg()"},
      {"conjugated and negated",
       pickle(tensor_with("}(" + text_opcode("conj") + "\x88" + text_opcode("neg") + "\x88u")),
       "metadata 'conj', which is not supported"},
      {"metadata that are none", pickle(tensor_with("\x88")), "a tensor has metadata, which is not supported"},
      {"more than metadata", pickle(tensor_with("NN")),
       "torch._utils _rebuild_tensor_v2 is called with arguments that torch.save does not write"},
      {"a large integer", "\x80\x02\x8a\x09\x01\x02\x03\x04\x05\x06\x07\x08\x09."s, "an integer has more than 64 bits"},
      {"deep nesting", pickle(std::string(100, ']') + std::string(99, 'a')), "values are nested more than 64 deep"},
  };
  for (const auto& test : kCases) {
    const auto value = parse_pickle(test.bytes);
    ASSERT_FALSE(value) << test.what;
    EXPECT_NE(value.error().message.find(test.message), std::string::npos)
        << test.what << ": " << value.error().message;
    EXPECT_TRUE(value.error().message.starts_with("byte ")) << value.error().message;
  }
}

TEST(ParsePickle, LimitsTheNumberOfValues) {
  std::string many = "]("s;
  many.append(5'000'000, '}');
  const auto value = parse_pickle(pickle(many + "e"));
  ASSERT_FALSE(value);
  EXPECT_NE(value.error().message.find("the pickle has more than 4194304 values"), std::string::npos)
      << value.error().message;
}

}  // namespace
}  // namespace torchbridge::train
