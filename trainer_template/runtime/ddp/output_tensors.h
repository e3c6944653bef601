// Finds the tensors in what a model's forward pass returns.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>

namespace torchbridge::train {

// visit_tensors(output, visit) calls visit(at::Tensor&) for each defined tensor, always in the same order; `visit` may
// replace it. Output may be a tensor, a number, a string, a c10::IValue (what TorchScript
// returns), or any nest of vector, array, pair, tuple, optional and map of these. For a struct of your own, declare a
// function of this name in its namespace:
//
//   template <class Visit>
//   void visit_tensors(MyOutput& output, Visit&& visit) { visit(output.logits); visit(output.hidden); }
template <class Visit>
void visit_tensors(at::Tensor& tensor, Visit&& visit) {
  if (tensor.defined()) visit(tensor);
}

template <class T, class Visit>
requires std::is_arithmetic_v<T> || std::is_enum_v<T> || std::is_same_v<T, std::string>
void visit_tensors(T&, Visit&&) {}

template <class Visit>
void visit_tensors(c10::IValue& value, Visit&& visit);
template <class T, class Visit>
void visit_tensors(std::vector<T>& list, Visit&& visit);
template <class T, std::size_t N, class Visit>
void visit_tensors(std::array<T, N>& list, Visit&& visit);
template <class T, class Visit>
void visit_tensors(std::optional<T>& value, Visit&& visit);
template <class A, class B, class Visit>
void visit_tensors(std::pair<A, B>& pair, Visit&& visit);
template <class... Ts, class Visit>
void visit_tensors(std::tuple<Ts...>& tuple, Visit&& visit);
template <class K, class V, class Visit>
void visit_tensors(std::map<K, V>& map, Visit&& visit);
// No unordered map: its order may differ between two visits.

template <class T, class Visit>
void visit_tensors(std::vector<T>& list, Visit&& visit) {
  if constexpr (!std::is_same_v<T, bool>) {
    for (T& element : list) visit_tensors(element, visit);
  }
}

template <class T, std::size_t N, class Visit>
void visit_tensors(std::array<T, N>& list, Visit&& visit) {
  for (T& element : list) visit_tensors(element, visit);
}

template <class T, class Visit>
void visit_tensors(std::optional<T>& value, Visit&& visit) {
  if (value) visit_tensors(*value, visit);
}

template <class A, class B, class Visit>
void visit_tensors(std::pair<A, B>& pair, Visit&& visit) {
  visit_tensors(pair.first, visit);
  visit_tensors(pair.second, visit);
}

template <class... Ts, class Visit>
void visit_tensors(std::tuple<Ts...>& tuple, Visit&& visit) {
  std::apply([&](Ts&... elements) { (visit_tensors(elements, visit), ...); }, tuple);
}

template <class K, class V, class Visit>
void visit_tensors(std::map<K, V>& map, Visit&& visit) {
  for (auto& [key, value] : map) visit_tensors(value, visit);
}

template <class Visit>
void visit_tensors(c10::IValue& value, Visit&& visit) {
  if (value.isTensor()) {
    at::Tensor tensor = value.toTensor();
    visit_tensors(tensor, visit);
    value = tensor;
  } else if (value.isTuple()) {
    std::vector<c10::IValue> elements = value.toTupleRef().elements().vec();
    visit_tensors(elements, visit);
    value.toTuple()->setElements(std::move(elements));
  } else if (value.isList()) {
    auto list = value.toList();
    for (std::size_t i = 0; i < list.size(); ++i) {
      c10::IValue element = list.get(i);
      visit_tensors(element, visit);
      list.set(i, std::move(element));
    }
  } else if (value.isGenericDict()) {
    auto dict = value.toGenericDict();
    for (auto& entry : dict) {
      c10::IValue element = entry.value();
      visit_tensors(element, visit);
      entry.setValue(std::move(element));
    }
  }
}

}  // namespace torchbridge::train
