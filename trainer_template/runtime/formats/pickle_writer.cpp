#include "trainer_template/runtime/formats/pickle_writer.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <limits>

namespace torchbridge::train {

using Kind = PickledValue::Kind;

namespace pickled {
namespace {

Pickled make(Kind kind, std::int64_t integer = 0, double number = 0, std::string text = {}) {
  auto value = std::make_shared<PickledValue>();
  value->kind = kind;
  value->integer = integer;
  value->number = number;
  value->text = std::move(text);
  return value;
}

Pickled container(Kind kind, std::vector<Pickled> items) {
  auto value = std::make_shared<PickledValue>();
  value->kind = kind;
  for (const Pickled& item : items) value->depth = std::max(value->depth, item->depth + 1);
  value->items = std::move(items);
  return value;
}

}  // namespace

Pickled none() { return make(Kind::kNone); }
Pickled boolean(bool value) { return make(Kind::kBool, value ? 1 : 0); }
Pickled integer(std::int64_t value) { return make(Kind::kInteger, value); }
Pickled number(double value) { return make(Kind::kFloat, 0, value); }
Pickled text(std::string value) { return make(Kind::kText, 0, 0, std::move(value)); }
Pickled list(std::vector<Pickled> items) { return container(Kind::kList, std::move(items)); }
Pickled tuple(std::vector<Pickled> items) { return container(Kind::kTuple, std::move(items)); }

Pickled dict(const std::vector<std::pair<Pickled, Pickled>>& items) {
  std::vector<Pickled> flat;
  for (const auto& [key, value] : items) flat.insert(flat.end(), {key, value});
  return container(Kind::kDict, std::move(flat));
}

Pickled tensor(PickledTensor tensor) {
  auto value = std::make_shared<PickledValue>();
  value->kind = Kind::kTensor;
  value->tensor = std::move(tensor);
  return value;
}

Pickled tensor(std::string storage, std::string dtype, std::vector<std::int64_t> shape) {
  PickledTensor made{
      .storage = std::move(storage), .dtype = std::move(dtype), .storage_size = 1, .shape = std::move(shape)};
  made.strides.resize(made.shape.size());
  for (std::size_t i = made.shape.size(); i-- > 0;) {
    made.strides[i] = std::max<std::int64_t>(1, made.storage_size);
    made.storage_size *= made.shape[i];
  }
  return tensor(std::move(made));
}

}  // namespace pickled

namespace {

std::string little_endian(std::uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i) & 0xff);
  return text;
}

// The opcodes by their names in pickletools.
class PickleWriter {
 public:
  std::string run(const PickledValue& value) {
    write(value);
    return "\x80\x02" + out_ + ".";  // PROTO 2, STOP
  }

 private:
  void write(const PickledValue& value) {
    switch (value.kind) {
      case Kind::kNone:
        out_ += 'N';
        return;  // NONE
      case Kind::kBool:
        out_ += value.integer ? '\x88' : '\x89';
        return;  // NEWTRUE, NEWFALSE
      case Kind::kInteger:
        return integer(value.integer);
      case Kind::kFloat:
        return number(value.number);
      case Kind::kText:
        return text(value.text);
      case Kind::kTuple:
        return items('(', value, 't');  // MARK, TUPLE
      case Kind::kList:
        out_ += ']';
        return items('(', value, 'e');  // EMPTY_LIST, APPENDS
      case Kind::kDict:
        out_ += '}';
        return items('(', value, 'u');  // EMPTY_DICT, SETITEMS
      case Kind::kTensor:
        return tensor(value.tensor);
      case Kind::kStorage:
      case Kind::kName:
        assert(false);
    }
  }

  void items(char mark, const PickledValue& value, char end) {
    out_ += mark;
    for (const Pickled& item : value.items) write(*item);
    out_ += end;
  }

  void integer(std::int64_t value) {
    if (value >= 0 && value < 256) {
      out_ += 'K' + little_endian(static_cast<std::uint64_t>(value), 1);  // BININT1
    } else if (value >= std::numeric_limits<std::int32_t>::min() && value <= std::numeric_limits<std::int32_t>::max()) {
      out_ += 'J' + little_endian(static_cast<std::uint64_t>(value), 4);  // BININT
    } else {
      out_ += "\x8a\x08" + little_endian(static_cast<std::uint64_t>(value), 8);  // LONG1
    }
  }

  void number(double value) {
    const std::string bytes = little_endian(std::bit_cast<std::uint64_t>(value), 8);
    out_ += 'G' + std::string(bytes.rbegin(), bytes.rend());  // BINFLOAT, big-endian
  }

  void text(const std::string& value) { out_ += 'X' + little_endian(value.size(), 4) + value; }  // BINUNICODE

  void counts(const std::vector<std::int64_t>& values) {
    out_ += '(';
    for (const std::int64_t value : values) integer(value);
    out_ += 't';
  }

  // torch._utils._rebuild_tensor_v2(storage, offset, shape, strides, False, OrderedDict()), the storage by reference:
  // ('storage', type, key, 'cpu', size).
  void tensor(const PickledTensor& tensor) {
    out_ += "ctorch._utils\n_rebuild_tensor_v2\n((";  // GLOBAL, MARK, MARK
    text("storage");
    out_ += "ctorch\n" + std::string(storage_class(tensor.dtype)) + "\n";
    text(tensor.storage);
    text("cpu");
    integer(tensor.storage_size);
    out_ += "tQ";  // TUPLE, BINPERSID
    integer(tensor.offset);
    counts(tensor.shape);
    counts(tensor.strides);
    out_ +=
        "\x89"
        "ccollections\nOrderedDict\n)RtR";  // NEWFALSE, GLOBAL, EMPTY_TUPLE, REDUCE, TUPLE, REDUCE
  }

  std::string out_;
};

}  // namespace

std::string to_pickle(const PickledValue& value) { return PickleWriter().run(value); }

}  // namespace torchbridge::train
