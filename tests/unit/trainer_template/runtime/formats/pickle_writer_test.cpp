#include "trainer_template/runtime/formats/pickle_writer.h"

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/formats/python_optimizer.h"
#include "trainer_template/runtime/formats/state_dict.h"

namespace torchbridge::train {
namespace {

using namespace pickled;

bool equal(const PickledValue& a, const PickledValue& b) {
  if (a.kind != b.kind || a.integer != b.integer || a.number != b.number || a.text != b.text ||
      a.items.size() != b.items.size() || a.depth != b.depth)
    return false;
  const PickledTensor &s = a.tensor, &t = b.tensor;
  if (s.storage != t.storage || s.dtype != t.dtype || s.storage_size != t.storage_size || s.offset != t.offset ||
      s.shape != t.shape || s.strides != t.strides)
    return false;
  for (std::size_t i = 0; i < a.items.size(); ++i) {
    if (!equal(*a.items[i], *b.items[i])) return false;
  }
  return true;
}

TEST(PickleWriter, WritesWhatTheReaderReads) {
  const Pickled kCases[] = {
      none(),
      boolean(true),
      boolean(false),
      integer(0),
      integer(255),
      integer(256),
      integer(-1),
      integer(std::int64_t{1} << 40),
      integer(std::numeric_limits<std::int64_t>::min()),
      number(0.1),
      number(-0.0),
      number(std::numeric_limits<double>::infinity()),
      text(""),
      text("layers.0.weight"),
      text("\xc3\xa4"),
      list({}),
      tuple({}),
      dict({}),
      tuple({integer(1)}),
      list({integer(1), list({text("x")}), none()}),
      dict({{text("a"), dict({{integer(3), tuple({number(1), number(2)})}})}}),
      tensor("0", "F32", {2, 3}),
      tensor("17", "BF16", {}),
      tensor("1", "I64", {0, 3}),
      tensor("1", "BOOL", {1, 1, 1}),
      tensor({.storage = "2", .dtype = "U8", .storage_size = 100, .offset = 7, .shape = {3, 2}, .strides = {1, 30}}),
  };
  for (const Pickled& value : kCases) {
    const auto read = parse_pickle(to_pickle(*value));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_TRUE(equal(**read, *value)) << to_pickle(*value);
  }
}

OptimizerRecord two_groups() {
  return {.kind = "adamw",
          .groups = {
              {.name = "decay",
               .options = {{"lr", 0.1}, {"beta1", 0.9}, {"beta2", 0.99}},
               .parameters = {"b.weight", "a.weight"}},
              {.name = "rest", .options = {{"lr", 0.2}, {"beta1", 0.9}, {"beta2", 0.99}}, .parameters = {"a.bias"}}}};
}

const std::vector<ParameterShape> kModel = {{"a.weight", {2, 3}}, {"a.bias", {2}}, {"b.weight", {4}}};

Pickled example() {
  return python_optimizer(two_groups(), {{"b.weight.exp_avg", tensor("0", "F32", {4})},
                                         {"a.weight.exp_avg", tensor("1", "F32", {2, 3})},
                                         {"a.weight.step", tensor("2", "F32", {})}});
}

std::map<std::string, std::string> storages(const std::vector<PythonState>& state) {
  std::map<std::string, std::string> by_name;
  for (const auto& [name, value] : state) by_name[name] = value->tensor.storage;
  return by_name;
}

TEST(PythonOptimizer, NumbersParametersInTheOrderOfTheGroups) {
  const Pickled optimizer = example();
  const PickledValue& state = *optimizer->find("state");
  ASSERT_EQ(state.items.size(), 4u);  // a parameter without state has none in Python either
  EXPECT_EQ(state.items[0]->integer, 0);
  EXPECT_EQ(state.items[1]->find("exp_avg")->tensor.storage, "0");
  EXPECT_EQ(state.items[2]->integer, 1);
  EXPECT_EQ(state.items[3]->find("step")->tensor.storage, "2");
  const auto& groups = optimizer->find("param_groups")->items;
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[1]->find("params")->items[0]->integer, 2);
  EXPECT_EQ(groups[1]->find("lr")->number, 0.2);
  EXPECT_EQ(groups[0]->find("betas")->items[1]->number, 0.99);
  EXPECT_EQ(groups[0]->find("decoupled_weight_decay")->integer, 1);
}

TEST(PythonOptimizer, IsReadBackByName) {
  const std::map<std::string, std::string> expected = {
      {"b.weight.exp_avg", "0"}, {"a.weight.exp_avg", "1"}, {"a.weight.step", "2"}};
  const Pickled optimizer = example();  // with param_names
  const auto state = state_by_name(*optimizer, kModel, {});
  ASSERT_TRUE(state) << state.error().message;
  EXPECT_EQ(storages(*state), expected);

  // Python lists the shared weight under its other name first.
  const std::vector<ParameterShape> tied = {{"wte", {2, 3}}, {"a.bias", {2}}, {"b.weight", {4}}};
  const auto of_alias = state_by_name(*optimizer, tied, {}, {{"a.weight", "wte"}});
  ASSERT_TRUE(of_alias) << of_alias.error().message;
  EXPECT_EQ(storages(*of_alias),
            (std::map<std::string, std::string>{{"b.weight.exp_avg", "0"}, {"wte.exp_avg", "1"}, {"wte.step", "2"}}));
}

// The state_dict of an optimizer that was created without names.
Pickled unnamed(const std::vector<std::vector<std::int64_t>>& groups,
                const std::vector<std::pair<Pickled, Pickled>>& state) {
  std::vector<Pickled> all;
  for (const auto& group : groups) {
    std::vector<Pickled> numbers;
    for (const std::int64_t number : group) numbers.push_back(integer(number));
    all.push_back(dict({{text("params"), list(numbers)}}));
  }
  return dict({{text("state"), dict(state)}, {text("param_groups"), list(all)}});
}

TEST(PythonOptimizer, NamesComeFromTheModelOrFromEqualGroups) {
  const std::vector<std::pair<Pickled, Pickled>> of_bias = {
      {integer(1), dict({{text("momentum_buffer"), tensor("5", "F32", {2})}})}};
  const auto in_order = unnamed({{0, 1, 2}}, of_bias);
  const auto by_model = state_by_name(*in_order, kModel, {});
  ASSERT_TRUE(by_model) << by_model.error().message;
  EXPECT_EQ(by_model->at(0).name, "a.bias.momentum_buffer");

  const std::vector<std::pair<Pickled, Pickled>> of_weight = {
      {integer(1),
       dict({{text("exp_avg"), tensor("5", "F32", {2, 3})}, {text("x"), none()}, {text("step"), number(3)}})}};
  const auto grouped = unnamed({{0, 1}, {2}}, of_weight);
  const std::vector<ParameterShape> frozen = {{"a.weight", {2, 3}}, {"a.bias", {2}, false}, {"b.weight", {4}, false}};
  const auto by_group = state_by_name(*grouped, frozen, two_groups().groups);
  ASSERT_TRUE(by_group) << by_group.error().message;
  ASSERT_EQ(by_group->size(), 2u);
  EXPECT_EQ(by_group->at(0).name, "a.weight.exp_avg");
  EXPECT_EQ(by_group->at(1).value->number, 3);
}

// Python has no state for a parameter that never had a gradient, for SGD without momentum, and before the first step.
TEST(PythonOptimizer, StateMayBeMissingOnlyWhereNoneIsNeeded) {
  const auto sgd = [](double ours_of_weights, double ours_of_bias) {
    return std::vector<OptimizerRecord::GroupRecord>{
        {.name = "", .options = {{"momentum", ours_of_weights}}, .parameters = {"a.weight", "b.weight"}},
        {.name = "", .options = {{"momentum", ours_of_bias}}, .parameters = {"a.bias"}}};
  };
  const auto theirs = [](double of_weights, double of_bias, const std::vector<std::pair<Pickled, Pickled>>& state) {
    const auto group = [](double momentum, std::vector<Pickled> numbers) {
      return dict({{text("params"), list(numbers)}, {text("momentum"), number(momentum)}});
    };
    return dict(
        {{text("state"), dict(state)},
         {text("param_groups"), list({group(of_weights, {integer(0), integer(1)}), group(of_bias, {integer(2)})})}});
  };
  const auto buffer = [](std::int64_t of, std::vector<std::int64_t> shape) {
    return std::pair{integer(of), dict({{text("momentum_buffer"), tensor("5", "F32", std::move(shape))}})};
  };
  const std::pair none_yet{integer(1), dict({{text("momentum_buffer"), none()}})};
  const std::vector<ParameterShape> frozen = {{"a.weight", {2, 3}}, {"a.bias", {2}}, {"b.weight", {4}, false}};
  const struct {
    std::vector<ParameterShape> model;
    std::vector<OptimizerRecord::GroupRecord> ours;
    Pickled optimizer;
    bool stepped;
    std::string missing;  // empty: the state is accepted
  } kCases[] = {
      {kModel, sgd(0.9, 0.9), theirs(0.9, 0.9, {buffer(0, {2, 3}), buffer(1, {4}), buffer(2, {2})}), true, ""},
      {kModel, sgd(0.9, 0.9), theirs(0.9, 0.9, {buffer(0, {2, 3}), buffer(2, {2})}), true, "b.weight"},
      {kModel, sgd(0.9, 0.9), theirs(0.9, 0.9, {buffer(0, {2, 3}), none_yet, buffer(2, {2})}), true, "b.weight"},
      {frozen, sgd(0.9, 0.9), theirs(0.9, 0.9, {buffer(0, {2, 3}), buffer(2, {2})}), true, ""},
      {frozen, sgd(0.9, 0.9), theirs(0.9, 0.9, {buffer(0, {2, 3})}), true, "a.bias"},
      {kModel, sgd(0.9, 0.9), theirs(0.9, 0, {buffer(0, {2, 3}), buffer(1, {4})}), true, ""},
      {kModel, sgd(0.9, 0), theirs(0.9, 0.9, {buffer(0, {2, 3}), buffer(1, {4})}), true, ""},
      {kModel, sgd(0, 0), theirs(0, 0, {}), true, ""},
      {kModel, sgd(0.9, 0.9), theirs(0.9, 0.9, {}), true, "a.weight"},
      {kModel, sgd(0.9, 0.9), theirs(0.9, 0.9, {}), false, ""},
      {kModel, sgd(0.9, 0.9), theirs(0.9, 0.9, {none_yet}), false, ""},
      {kModel, sgd(0.9, 0.9), theirs(0.9, 0.9, {buffer(2, {2})}), false, "a.weight"},
      {kModel, two_groups().groups, theirs(0, 0, {}), true, "b.weight"},  // the state of SGD for AdamW
      {kModel, two_groups().groups,
       unnamed({{0, 1}, {2}}, {{integer(0), dict({{text("exp_avg"), tensor("5", "F32", {4})}})}}), true, "a.weight"},
  };
  for (const auto& c : kCases) {
    SCOPED_TRACE(&c - kCases);
    const auto state = state_by_name(*c.optimizer, c.model, c.ours, {}, c.stepped);
    const std::string fault = state ? "" : state.error().message;
    EXPECT_TRUE(c.missing.empty()
                    ? fault.empty()
                    : fault.starts_with("its optimizer has no state of '" + c.missing + "', which this run trains: "))
        << fault;
  }
}

TEST(PythonOptimizer, RejectsStateThatDoesNotFit) {
  const auto state_of = [](std::int64_t number, Pickled value) {
    return std::vector<std::pair<Pickled, Pickled>>{{integer(number), dict({{text("exp_avg"), std::move(value)}})}};
  };
  const struct {
    Pickled optimizer;
    std::string expected;
  } kCases[] = {
      {unnamed({{0, 1}}, {}), "groups of 2 parameters, which cannot be matched to the 3 parameters of this model"},
      {unnamed({{0}, {1, 2}}, {}), "groups of 1, 2 parameters"},
      {unnamed({}, {}), "no groups"},
      {unnamed({{0, 0, 1}}, {}), "has parameter 0 twice"},
      {unnamed({{0, 1, 2}}, state_of(3, integer(1))), "state of a parameter that is in no group"},
      {unnamed({{0, 1, 2}}, {{text("a"), dict({})}}), "state of a parameter that is in no group"},
      {unnamed({{0, 1, 2}}, {{integer(0), dict({})}, {integer(0), dict({})}}), "has the state of 'a.weight' twice"},
      {unnamed({{0, 1, 2}}, {{integer(0), none()}}), "state of 'a.weight' is not a dictionary"},
      {unnamed({{0, 1, 2}}, state_of(0, text("x"))), "'a.weight.exp_avg' is neither tensor nor number"},
      {unnamed({{0, 1, 2}}, state_of(0, tensor("0", "F32", {3, 2}))), "has shape [3, 2], the parameter [2, 3]"},
      {dict({{text("state"), dict({})}, {text("param_groups"), list({dict({})})}}),
       "a group without a list of parameters"},
      {dict({{text("state"), dict({})}, {text("param_groups"), list({dict({{text("params"), list({text("x")})}})})}}),
       "a parameter that is not a number"},
  };
  for (const auto& c : kCases) {
    const auto state = state_by_name(*c.optimizer, kModel, two_groups().groups);
    ASSERT_FALSE(state) << c.expected;
    EXPECT_TRUE(contains(state.error().message, c.expected));
  }
}

TEST(StateDict, IsFoundWhereScriptsPutIt) {
  const Pickled weights = dict({{text("module.a"), tensor("0", "F32", {})}}), optimizer = unnamed({}, {});
  EXPECT_EQ(*find_state_dict(*weights), weights.get());
  EXPECT_EQ(common_prefix(*weights), "module.");
  for (const char* key : {"model", "state_dict", "model_state_dict"}) {
    const Pickled file = dict({{text("epoch"), integer(3)}, {text(key), weights}, {text("optim"), optimizer}});
    EXPECT_EQ(*find_state_dict(*file), weights.get()) << key;
    EXPECT_EQ(find_optimizer(*file), optimizer.get());
  }
  EXPECT_EQ(find_optimizer(*weights), nullptr);
  EXPECT_FALSE(find_state_dict(*list({})));
}

}  // namespace
}  // namespace torchbridge::train
