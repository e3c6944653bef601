#include "backends/mpi/reductions.h"

#include <map>
#include <optional>
#include <utility>

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/add.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/maximum.h>
#include <ATen/ops/minimum.h>
#include <ATen/ops/mul.h>

#include "backends/mpi/mpi_thread.h"

namespace torchbridge::mpi {
namespace {

using Op = c10d::ReduceOp;

const char* name_of(Op::RedOpType op) {
  constexpr const char* kNames[] = {"SUM",  "AVG", "PRODUCT", "MIN",       "MAX",
                                    "BAND", "BOR", "BXOR",    "PREMUL_SUM"};
  return op < std::size(kNames) ? kNames[op] : "an unknown operator";
}

Op::RedOpType summed(Op::RedOpType op) {
  return op == Op::AVG || op == Op::PREMUL_SUM ? Op::SUM : op;
}

bool is_short_float(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

// MPI's own types, by the kind of operators that it has for them.
enum class OperatorKind { kNone, kInteger, kReal, kComplex, kBool };
struct MpiType {
  MPI_Datatype type;
  OperatorKind kind;
};

MpiType mpi_type_of(at::ScalarType type) {
  switch (type) {
    case at::kByte:
      return {MPI_UINT8_T, OperatorKind::kInteger};
    case at::kChar:
      return {MPI_INT8_T, OperatorKind::kInteger};
    case at::kShort:
      return {MPI_INT16_T, OperatorKind::kInteger};
    case at::kInt:
      return {MPI_INT32_T, OperatorKind::kInteger};
    case at::kLong:
      return {MPI_INT64_T, OperatorKind::kInteger};
    case at::kUInt16:
      return {MPI_UINT16_T, OperatorKind::kInteger};
    case at::kUInt32:
      return {MPI_UINT32_T, OperatorKind::kInteger};
    case at::kUInt64:
      return {MPI_UINT64_T, OperatorKind::kInteger};
    case at::kFloat:
      return {MPI_FLOAT, OperatorKind::kReal};
    case at::kDouble:
      return {MPI_DOUBLE, OperatorKind::kReal};
    case at::kComplexFloat:
      return {MPI_C_FLOAT_COMPLEX, OperatorKind::kComplex};
    case at::kComplexDouble:
      return {MPI_C_DOUBLE_COMPLEX, OperatorKind::kComplex};
    case at::kBool:
      return {MPI_C_BOOL, OperatorKind::kBool};
    case at::kHalf:
    case at::kBFloat16:
      return {MPI_DATATYPE_NULL, OperatorKind::kReal};
    default:
      return {MPI_DATATYPE_NULL, OperatorKind::kNone};
  }
}

std::optional<MPI_Op> op_for(Op::RedOpType op, OperatorKind kind) {
  const bool truth = kind == OperatorKind::kBool, bits = kind == OperatorKind::kInteger || truth,
             ordered = kind != OperatorKind::kComplex;
  switch (op) {
    case Op::SUM:
      return truth ? MPI_LOR : MPI_SUM;
    case Op::PRODUCT:
      return truth ? MPI_LAND : MPI_PROD;
    case Op::MIN:
      return ordered ? std::optional(truth ? MPI_LAND : MPI_MIN) : std::nullopt;
    case Op::MAX:
      return ordered ? std::optional(truth ? MPI_LOR : MPI_MAX) : std::nullopt;
    case Op::BAND:
      return bits ? std::optional(truth ? MPI_LAND : MPI_BAND) : std::nullopt;
    case Op::BOR:
      return bits ? std::optional(truth ? MPI_LOR : MPI_BOR) : std::nullopt;
    case Op::BXOR:
      return bits ? std::optional(truth ? MPI_LXOR : MPI_BXOR) : std::nullopt;
    default:
      return std::nullopt;
  }
}

template <at::ScalarType type,
          at::Tensor& (*combine)(at::Tensor&, const at::Tensor&, const at::Tensor&)>
void reduce_short(void* in, void* inout, int* count, MPI_Datatype*) {
  const at::AutoDispatchBelowADInplaceOrView raw;
  const auto options = at::TensorOptions().dtype(type);
  at::Tensor mine = at::from_blob(inout, {*count}, options);
  combine(mine, mine, at::from_blob(in, {*count}, options));
}

at::Tensor& add(at::Tensor& out, const at::Tensor& a, const at::Tensor& b) {
  return at::add_out(out, a, b);
}

template <at::ScalarType type>
MPI_User_function* short_function(Op::RedOpType op) {
  switch (op) {
    case Op::SUM:
      return reduce_short<type, add>;
    case Op::PRODUCT:
      return reduce_short<type, at::mul_out>;
    case Op::MIN:
      return reduce_short<type, at::minimum_out>;
    default:
      return reduce_short<type, at::maximum_out>;
  }
}

// Made at the first use, and freed when MPI is finalised. On MPI's thread.
Reduction short_reduction(Op::RedOpType op, at::ScalarType type) {
  static MPI_Datatype two_bytes = MPI_DATATYPE_NULL;
  // Never destroyed: MPI is finalised after the objects of the program.
  static auto& made = *new std::map<std::pair<Op::RedOpType, at::ScalarType>, MPI_Op>;
  if (two_bytes == MPI_DATATYPE_NULL) {
    check("MPI_Type_contiguous", MPI_Type_contiguous(2, MPI_BYTE, &two_bytes));
    check("MPI_Type_commit", MPI_Type_commit(&two_bytes));
    MpiThread::instance().at_finalize([] {
      for (auto& entry : made) MPI_Op_free(&entry.second);
      MPI_Type_free(&two_bytes);
    });
  }
  const auto found = made.find({op, type});
  if (found != made.end()) return {two_bytes, found->second};
  MPI_Op own = MPI_OP_NULL;
  check("MPI_Op_create", MPI_Op_create(type == at::kHalf ? short_function<at::kHalf>(op)
                                                         : short_function<at::kBFloat16>(op),
                                       1, &own));
  made.emplace(std::pair(op, type), own);
  return {two_bytes, own};
}

}  // namespace

void check_reduction(Op::RedOpType op, at::ScalarType type) {
  const OperatorKind kind = mpi_type_of(type).kind;
  TORCH_CHECK_TYPE(kind != OperatorKind::kNone, "the mpi backend cannot reduce ", type,
                   ": reduce a float, integer, bool or complex tensor");
  TORCH_CHECK_TYPE(
      op_for(summed(op), kind).has_value() && !(kind == OperatorKind::kBool && op != summed(op)),
      "the mpi backend has no ", name_of(op), " of ", type, " tensors");
}

Reduction reduction_of(Op::RedOpType op, at::ScalarType type) {
  check_reduction(op, type);
  if (is_short_float(type)) return short_reduction(summed(op), type);
  const MpiType mpi = mpi_type_of(type);
  return {mpi.type, *op_for(summed(op), mpi.kind)};
}

ByteCount::ByteCount(std::int64_t bytes, std::int64_t largest_count) {
  if (bytes <= largest_count) {
    count = static_cast<int>(bytes);
    return;
  }
  MPI_Datatype block = MPI_DATATYPE_NULL, blocks = MPI_DATATYPE_NULL;
  const int rest = static_cast<int>(bytes % largest_count);
  check("MPI_Type_contiguous",
        MPI_Type_contiguous(static_cast<int>(largest_count), MPI_BYTE, &block));
  check("MPI_Type_contiguous",
        MPI_Type_contiguous(static_cast<int>(bytes / largest_count), block, &blocks));
  const int lengths[] = {1, rest};
  const MPI_Aint offsets[] = {0, static_cast<MPI_Aint>(bytes - rest)};
  const MPI_Datatype types[] = {blocks, MPI_BYTE};
  check("MPI_Type_create_struct",
        MPI_Type_create_struct(rest > 0 ? 2 : 1, lengths, offsets, types, &type));
  check("MPI_Type_commit", MPI_Type_commit(&type));
  MPI_Type_free(&blocks);
  MPI_Type_free(&block);
  count = 1;
}

ByteCount::~ByteCount() {
  if (type != MPI_BYTE) MPI_Type_free(&type);
}

}  // namespace torchbridge::mpi
