#include "trainer_template/runtime/formats/pickle.h"

#include <algorithm>
#include <bit>
#include <unordered_map>

#include "bridge/base/env_map.h"
#include "trainer_template/runtime/formats/safetensors_header.h"

namespace torchbridge::train {
namespace {

using Kind = PickledValue::Kind;

constexpr int kMaxDepth = 64;  // a state_dict has about five levels
// One byte of a pickle can make one value, so the file's size does not limit the memory. 100,000 tensors have about two
// million values.
constexpr std::size_t kMaxValues = 1u << 22;

constexpr std::pair<std::string_view, const char*> kStorages[] = {
    {"torch FloatStorage", "F32"},     {"torch DoubleStorage", "F64"}, {"torch HalfStorage", "F16"},
    {"torch BFloat16Storage", "BF16"}, {"torch LongStorage", "I64"},   {"torch IntStorage", "I32"},
    {"torch ByteStorage", "U8"},       {"torch BoolStorage", "BOOL"},
};
constexpr std::string_view kOrderedDict = "collections OrderedDict", kSize = "torch Size",
                           kTensor = "torch._utils _rebuild_tensor_v2", kParameter = "torch._utils _rebuild_parameter";

struct PickleError {
  std::string reason;
};

struct Node : PickledValue {
  bool inside = false;  // part of another value: it must not change any more
};
using Value = std::shared_ptr<Node>;

const char* dtype_of_storage(std::string_view name) {
  for (const auto& [storage, dtype] : kStorages) {
    if (storage == name) return dtype;
  }
  return nullptr;
}

bool is_known(std::string_view name) {
  return name == kOrderedDict || name == kSize || name == kTensor || name == kParameter ||
         dtype_of_storage(name) != nullptr;
}

std::vector<std::int64_t> counts_of(const PickledValue& tuple) {
  std::vector<std::int64_t> counts;
  for (const auto& item : tuple.items) {
    if (!item->is(Kind::kInteger) || item->integer < 0)
      throw PickleError{"the shape of a tensor is not a tuple of counts"};
    counts.push_back(item->integer);
  }
  return counts;
}

// Whether every element is inside the storage, without overflow.
bool fits(const PickledTensor& tensor) {
  std::int64_t last = tensor.offset;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    if (tensor.shape[i] == 0) return tensor.offset <= tensor.storage_size;
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(tensor.shape[i] - 1, tensor.strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last))
      return false;
  }
  return last < tensor.storage_size;
}

class PickleMachine {
 public:
  explicit PickleMachine(std::string_view bytes) : bytes_(bytes) {}

  Pickled run() {
    if (take() != 0x80) throw PickleError{"expected pickle protocol 2"};
    if (const int protocol = take(); protocol != 2) {
      throw PickleError{"pickle protocol " + std::to_string(protocol) +
                        " is not supported, only 2 is: call torch.save without pickle_protocol"};
    }
    while (true) {
      begin_ = at_;
      const unsigned char opcode = take();
      if (opcode == '.') break;
      step(opcode);
    }
    if (at_ != bytes_.size()) throw PickleError{"bytes follow the end of the pickle"};
    if (stack_.size() != 1 || !marks_.empty())
      throw PickleError{"the pickle ends with " + std::to_string(stack_.size()) + " values and " +
                        std::to_string(marks_.size()) + " open marks, expected one value"};
    return stack_.front();
  }

  std::size_t position() const { return begin_; }

 private:
  // The opcodes by their names in pickletools.
  void step(unsigned char opcode) {
    switch (opcode) {
      case '}':
        return push(make(Kind::kDict));  // EMPTY_DICT
      case ']':
        return push(make(Kind::kList));  // EMPTY_LIST
      case ')':
        return push(make(Kind::kTuple));  // EMPTY_TUPLE
      case '(':
        return marks_.push_back(stack_.size());  // MARK
      case 't':
        return push(tuple(to_mark()));  // TUPLE
      case 0x85:
        return push(tuple(top(1)));  // TUPLE1
      case 0x86:
        return push(tuple(top(2)));  // TUPLE2
      case 0x87:
        return push(tuple(top(3)));  // TUPLE3
      case 'q':
        return put_memo(take());  // BINPUT
      case 'r':
        return put_memo(number(4));  // LONG_BINPUT
      case 'h':
        return get_memo(take());  // BINGET
      case 'j':
        return get_memo(number(4));  // LONG_BINGET
      case 'X':
        return push(text(string(number(4))));  // BINUNICODE
      case 'K':
        return push(integer(take()));  // BININT1
      case 'M':
        return push(integer(static_cast<std::int64_t>(number(2))));  // BININT2
      case 'J':
        return push(integer(static_cast<std::int32_t>(number(4))));  // BININT
      case 0x8a:
        return push(long_integer());  // LONG1
      case 'G':
        return push(floating());  // BINFLOAT
      case 0x88:
        return push(boolean(1));  // NEWTRUE
      case 0x89:
        return push(boolean(0));  // NEWFALSE
      case 'N':
        return push(make(Kind::kNone));  // NONE
      case 's':
        return put_into_dict(top(2));  // SETITEM
      case 'u':
        return put_into_dict(to_mark());  // SETITEMS
      case 'a':
        return append(top(1));  // APPEND
      case 'e':
        return append(to_mark());  // APPENDS
      case 'c':
        return push(name());  // GLOBAL
      case 'Q':
        return push(storage(*top(1).front()));  // BINPERSID
      case 'R':
        return reduce(top(2));  // REDUCE
      case 'b':
        return build(top(1));  // BUILD
      default:
        throw PickleError{"opcode " + std::to_string(opcode) + " is not supported, and no state_dict needs it"};
    }
  }

  unsigned char take() {
    if (at_ == bytes_.size()) throw PickleError{"the pickle is truncated"};
    return static_cast<unsigned char>(bytes_[at_++]);
  }

  std::string_view string(std::uint64_t size) {
    if (size > bytes_.size() - at_) throw PickleError{"the pickle is truncated"};
    const auto found = bytes_.substr(at_, size);
    at_ += size;
    return found;
  }

  // Little-endian, of up to eight bytes.
  std::uint64_t number(int size) {
    std::uint64_t value = 0;
    for (int i = 0; i < size; ++i) value |= std::uint64_t{take()} << (8 * i);
    return value;
  }

  std::string_view line() {
    const auto end = bytes_.find('\n', at_);
    if (end == std::string_view::npos) throw PickleError{"the pickle is truncated"};
    const auto found = string(end - at_);
    ++at_;
    return found;
  }

  Value make(Kind kind) {
    if (++made_ > kMaxValues) throw PickleError{"the pickle has more than " + std::to_string(kMaxValues) + " values"};
    auto value = std::make_shared<Node>();
    value->kind = kind;
    return value;
  }

  Value integer(std::int64_t value) {
    auto made = make(Kind::kInteger);
    made->integer = value;
    return made;
  }

  Value boolean(int value) {
    auto made = make(Kind::kBool);
    made->integer = value;
    return made;
  }

  Value long_integer() {
    const int size = take();
    if (size > 8) throw PickleError{"an integer has more than 64 bits"};
    const std::uint64_t low = number(size);
    const int unused = 64 - 8 * size;
    return integer(size == 0 ? 0 : static_cast<std::int64_t>(low << unused) >> unused);
  }

  Value floating() {
    std::uint64_t bits = 0;
    for (int i = 0; i < 8; ++i) bits = bits << 8 | take();  // big-endian, unlike the integers
    auto made = make(Kind::kFloat);
    made->number = std::bit_cast<double>(bits);
    return made;
  }

  Value text(std::string_view content) {
    auto made = make(Kind::kText);
    made->text = content;
    return made;
  }

  Value name() {
    const std::string module(line());
    auto made = make(Kind::kName);
    made->text = module + " " + std::string(line());
    if (!is_known(made->text)) {
      throw PickleError{"class or function " + printable(made->text.replace(module.size(), 1, ".")) +
                        " is not allowed: only plain values and tensors are read"};
    }
    return made;
  }

  Value tuple(std::vector<Value> items) {
    auto made = make(Kind::kTuple);
    add(*made, items);
    return made;
  }

  // A value that becomes part of another is complete, and open_container() rejects later changes. So no value can
  // contain itself, and `depth` stays right.
  void add(PickledValue& container, const std::vector<Value>& items) {
    for (const auto& item : items) {
      if (item.get() == &container) throw PickleError{"a value contains itself"};
      container.depth = std::max(container.depth, item->depth + 1);
      item->inside = true;
      container.items.push_back(item);
    }
    if (container.depth > kMaxDepth)
      throw PickleError{"values are nested more than " + std::to_string(kMaxDepth) + " deep"};
  }

  PickledValue& open_container(Kind kind) {
    if (stack_.empty() || stack_.size() <= floor() || !stack_.back()->is(kind))
      throw PickleError{"items are added to a value that is not a list or dictionary"};
    if (stack_.back()->inside) throw PickleError{"a value that is part of another value is changed"};
    return *stack_.back();
  }

  void put_into_dict(const std::vector<Value>& pairs) {
    PickledValue& dict = open_container(Kind::kDict);
    if (pairs.size() % 2 != 0) throw PickleError{"a dictionary has a key without a value"};
    for (std::size_t i = 0; i < pairs.size(); i += 2) {
      if (!pairs[i]->is(Kind::kText) && !pairs[i]->is(Kind::kInteger))
        throw PickleError{"a key of a dictionary is neither text nor an integer"};
    }
    add(dict, pairs);
  }

  void append(const std::vector<Value>& items) { add(open_container(Kind::kList), items); }

  // ('storage', type, key, location, size). The location is the device at the time of the save, and is ignored.
  Value storage(const PickledValue& id) {
    const auto& items = id.items;
    const bool right = id.is(Kind::kTuple) && items.size() == 5 && items[0]->text == "storage" &&
                       items[1]->is(Kind::kName) && items[2]->is(Kind::kText) && items[4]->is(Kind::kInteger) &&
                       items[4]->integer >= 0;
    const char* dtype = right ? dtype_of_storage(items[1]->text) : nullptr;
    if (dtype == nullptr) throw PickleError{"a persistent id does not name the storage of a tensor"};
    std::int64_t bytes = 0;
    if (__builtin_mul_overflow(items[4]->integer, static_cast<std::int64_t>(element_size(dtype)), &bytes))
      throw PickleError{"a storage is too large"};
    auto made = make(Kind::kStorage);
    made->tensor.storage = items[2]->text;
    made->tensor.dtype = dtype;
    made->tensor.storage_size = items[4]->integer;
    return made;
  }

  // A call. Only the few functions are allowed whose result is known without calling them.
  void reduce(const std::vector<Value>& call) {
    const auto& arguments = call[1]->items;
    if (!call[0]->is(Kind::kName) || !call[1]->is(Kind::kTuple))
      throw PickleError{"a value that is not a function is called"};
    const std::string& function = call[0]->text;
    if (function == kOrderedDict && arguments.empty()) return push(make(Kind::kDict));
    if (function == kSize && arguments.size() == 1 && arguments[0]->is(Kind::kTuple))
      return push(node_of(arguments[0]));
    if (function == kParameter && arguments.size() == 3 && arguments[0]->is(Kind::kTensor))
      return push(node_of(arguments[0]));
    if (function == kTensor && arguments.size() >= 4 && arguments.size() <= 7) return push(tensor(arguments));
    throw PickleError{printable(function) + " is called with arguments that torch.save does not write"};
  }

  // Rejects metadata that make the values of a tensor differ from those in its storage, such as {"neg": True} of
  // torch.imag(x.conj()).
  static void check_tensor_metadata(const PickledValue& metadata) {
    if (metadata.is(Kind::kNone) || (metadata.is(Kind::kDict) && metadata.items.empty())) return;
    const bool named = metadata.is(Kind::kDict) && metadata.items[0]->is(Kind::kText);
    throw PickleError{"a tensor has metadata" +
                      (named ? " '" + printable(metadata.items[0]->text) + "'" : std::string()) +
                      ", which is not supported: save tensor.resolve_neg().resolve_conj()"};
  }

  // (storage, offset, shape, strides, requires_grad, backward_hooks, metadata); torch writes metadata only if there are
  // any.
  Value tensor(const std::vector<Pickled>& arguments) {
    if (!arguments[0]->is(Kind::kStorage) || !arguments[1]->is(Kind::kInteger) || !arguments[2]->is(Kind::kTuple) ||
        !arguments[3]->is(Kind::kTuple)) {
      throw PickleError{"the arguments of a tensor are not storage, offset, shape and strides"};
    }
    if (arguments.size() == 7) check_tensor_metadata(*arguments[6]);
    auto made = make(Kind::kTensor);
    made->tensor = arguments[0]->tensor;
    made->tensor.offset = arguments[1]->integer;
    made->tensor.shape = counts_of(*arguments[2]);
    made->tensor.strides = counts_of(*arguments[3]);
    const bool same_length =
        made->tensor.shape.size() == made->tensor.strides.size() && made->tensor.shape.size() <= kMaxDepth;
    if (!same_length || made->tensor.offset < 0 || !fits(made->tensor))
      throw PickleError{"a tensor reaches beyond its storage"};
    return made;
  }

  // Attributes of an OrderedDict. A state_dict has _metadata, the versions of modules, which loading does not need.
  void build(const std::vector<Value>& state) {
    (void)open_container(Kind::kDict);
    if (!state[0]->is(Kind::kDict)) throw PickleError{"attributes are set on a value that has none"};
  }

  void push(Value value) { stack_.push_back(std::move(value)); }

  [[noreturn]] static void lacks_value() {
    throw PickleError{"the file is damaged: an opcode uses a value that is not in it"};
  }

  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }

  std::vector<Value> top(std::size_t count) {
    if (stack_.size() - floor() < count) lacks_value();
    std::vector<Value> values(stack_.end() - static_cast<std::ptrdiff_t>(count), stack_.end());
    stack_.resize(stack_.size() - count);
    return values;
  }

  std::vector<Value> to_mark() {
    if (marks_.empty()) lacks_value();
    auto values = top(stack_.size() - marks_.back());
    marks_.pop_back();
    return values;
  }

  void put_memo(std::uint64_t key) {
    if (stack_.size() <= floor()) lacks_value();
    memo_[key] = stack_.back();
  }

  void get_memo(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) lacks_value();
    push(found->second);
  }

  // REQUIRES: a value that make() returned, so it is a Node.
  static Value node_of(const Pickled& value) {
    return std::static_pointer_cast<Node>(std::const_pointer_cast<PickledValue>(value));
  }

  std::string_view bytes_;
  std::size_t at_ = 0, begin_ = 0, made_ = 0;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;  // where on the stack
  std::unordered_map<std::uint64_t, Value> memo_;
};

}  // namespace

std::string_view storage_class(std::string_view dtype) {
  for (const auto& [storage, name] : kStorages) {
    if (name == dtype) return storage.substr(storage.find(' ') + 1);
  }
  return {};
}

const PickledValue* PickledValue::find(std::string_view key) const {
  if (kind != Kind::kDict) return nullptr;
  for (std::size_t i = 0; i < items.size(); i += 2) {
    if (items[i]->is(Kind::kText) && items[i]->text == key) return items[i + 1].get();
  }
  return nullptr;
}

Result<Pickled> parse_pickle(std::string_view bytes) {
  PickleMachine machine(bytes);
  try {
    return machine.run();
  } catch (const PickleError& error) {
    return Error{"byte " + std::to_string(machine.position()) + " of the pickle: " + error.reason};
  }
}

}  // namespace torchbridge::train
