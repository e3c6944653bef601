#include <cmath>
#include <functional>

#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sparse_coo_tensor.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <torchbridge/errors.h>
#include <torchbridge/optimizer.h>

#include "tests/support/temporary_folder.h"
#include "trainer_template/runtime/optim/joined_optimizer.h"

namespace torchbridge::train {
namespace {

NamedTensors two_parameters() {
  return {{"a.weight", at::ones({2, 3}).set_requires_grad(true)},
          {"a.bias", at::zeros({3}).set_requires_grad(true)}};
}

void set_gradients(const NamedTensors& parameters, double value) {
  for (const auto& [name, parameter] : parameters)
    parameter.mutable_grad() = at::full(parameter.sizes(), value);
}

void expect_equal(const NamedTensors& a, const NamedTensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].first, b[i].first);
    EXPECT_TRUE(a[i].second.equal(b[i].second)) << a[i].first;
  }
}

using Maker = std::function<std::unique_ptr<Optimizer>(NamedTensors)>;

const std::pair<const char*, Maker> kOptimizers[] = {
    {"sgd", [](NamedTensors p) { return make_sgd(std::move(p), {}); }},
    {"sgd with momentum", [](NamedTensors p) { return make_sgd(std::move(p), {.momentum = 0.9}); }},
    {"nesterov",
     [](NamedTensors p) {
       return make_sgd(std::move(p), {.momentum = 0.9, .weight_decay = 0.1, .nesterov = true});
     }},
    {"adam with amsgrad",
     [](NamedTensors p) { return make_adam(std::move(p), {.amsgrad = true}); }},
    {"adamw", [](NamedTensors p) { return make_adamw(std::move(p), {}); }},
};

// The reader reads when it is waited for.
TEST(Optimizer, WaitsForItsReadersBeforeItWrites) {
  for (const auto& [name, make] : kOptimizers) {
    SCOPED_TRACE(name);
    const NamedTensors parameters = two_parameters();
    const auto optimizer = make(parameters);
    const auto read = [&] {
      NamedTensors copies;
      for (const NamedTensors& tensors : {parameters, optimizer->state()}) {
        for (const auto& [key, tensor] : tensors) copies.emplace_back(key, tensor.detach().clone());
      }
      return copies;
    };
    set_gradients(parameters, 1), optimizer->step(0.1);
    const NamedTensors before = read();
    NamedTensors seen;
    optimizer->read_until([&] { seen = read(); });
    set_gradients(parameters, 2), optimizer->step(0.1);
    expect_equal(seen, before);
    EXPECT_FALSE(parameters[0].second.equal(before[0].second));
  }
}

TEST(Optimizer, ResumesFromItsState) {
  for (const auto& [name, make] : kOptimizers) {
    const NamedTensors straight = two_parameters(), stopped = two_parameters();
    const auto first = make(straight), before = make(stopped);
    for (int i = 0; i < 3; ++i) {
      set_gradients(straight, i + 1), first->step(0.1);
      set_gradients(stopped, i + 1), before->step(0.1);
    }
    const auto after = make(stopped);
    after->load_state(before->state());
    set_gradients(straight, 0.5), first->step(0.1);
    set_gradients(stopped, 0.5), after->step(0.1);
    SCOPED_TRACE(name);
    expect_equal(straight, stopped);
    expect_equal(first->state(), after->state());
  }
}

at::Tensor tensor_named(const NamedTensors& tensors, const std::string& wanted) {
  for (const auto& [name, tensor] : tensors) {
    if (name == wanted) return tensor;
  }
  return {};
}

TEST(Optimizer, UsesTheMemoryOfAdoptedState) {
  const NamedTensors parameters = two_parameters();
  const auto before = make_adamw(parameters, {}), after = make_adamw(parameters, {});
  set_gradients(parameters, 1), before->step(0.1);
  NamedTensors given;
  for (const auto& [name, tensor] : before->state()) given.emplace_back(name, tensor.clone());
  given[0].second = given[0].second.t().contiguous().t();  // other strides: this one is copied
  after->adopt_state(given);
  const NamedTensors state = after->state();
  expect_equal(state, before->state());
  for (std::size_t i = 0; i < state.size(); ++i)
    EXPECT_EQ(state[i].second.is_alias_of(given[i].second), i != 0) << state[i].first;
  EXPECT_TRUE(state[0].second.is_contiguous());

  const auto of_one_memory = make_adamw(parameters, {});
  for (auto& [name, tensor] : given) {
    if (name.ends_with(".exp_avg_sq"))
      tensor = tensor_named(given, name.substr(0, name.size() - 3));
  }
  of_one_memory->adopt_state(given);
  const NamedTensors own = of_one_memory->state();
  EXPECT_FALSE(own[0].second.is_alias_of(own[1].second));
}

TEST(Optimizer, PlainSgdSubtractsTheGradient) {
  const NamedTensors parameters = two_parameters();
  const auto sgd = make_sgd(parameters, {});
  set_gradients(parameters, 2);
  sgd->step(0.25);
  EXPECT_TRUE(parameters[0].second.equal(at::full({2, 3}, 0.5)));
  EXPECT_TRUE(sgd->state().empty());
}

TEST(Optimizer, DoesNotChangeParametersWithoutGradient) {
  for (const auto& [name, make] : kOptimizers) {
    const NamedTensors parameters = two_parameters();
    const auto optimizer = make(parameters);
    optimizer->step(0.1);
    EXPECT_TRUE(optimizer->state().empty()) << name;
    parameters[1].second.mutable_grad() = at::ones({3});
    optimizer->step(0.1);
    EXPECT_TRUE(parameters[0].second.equal(at::ones({2, 3}))) << name;
    EXPECT_FALSE(parameters[1].second.equal(at::zeros({3}))) << name;
  }
}

TEST(Optimizer, ZeroGradDropsGradients) {
  const NamedTensors parameters = two_parameters();
  const auto sgd = make_sgd(parameters, {});
  set_gradients(parameters, 1);
  sgd->zero_grad();
  for (const auto& [name, parameter] : parameters) EXPECT_FALSE(parameter.grad().defined()) << name;
}

TEST(Optimizer, RejectsTheStateOfAnotherOptimizer) {
  const NamedTensors parameters = two_parameters();
  const auto adamw = make_adamw(parameters, {});
  set_gradients(parameters, 1);
  adamw->step(0.1);
  const auto load = [&](const NamedTensors& state) {
    return error_of([&] { make_adamw(parameters, {})->load_state(state); });
  };
  NamedTensors state = adamw->state();
  EXPECT_EQ(load(state), "");
  EXPECT_EQ(load({}), "");
  NamedTensors missing(state.begin() + 1, state.end());
  EXPECT_TRUE(contains(load(missing), "has no 'a.weight.exp_avg'"));
  NamedTensors other_shape = state;
  other_shape[0].second = at::zeros({7});
  EXPECT_TRUE(
      contains(load(other_shape),
               "'a.weight.exp_avg' has shape [7] and type Float, expected [2, 3] and Float"));
  EXPECT_TRUE(contains(error_of([&] { make_sgd(parameters, {})->load_state(state); }),
                       "was another --optimizer used?"));
  EXPECT_TRUE(contains(error_of([&] { make_sgd(parameters, {.momentum = 1})->load_state(state); }),
                       "was another --optimizer used?"));
}

// As Python's: momentum may be switched off, and on again.
TEST(Optimizer, SgdTakesMomentumBuffersThatItDoesNotUse) {
  const NamedTensors parameters = two_parameters();
  const auto before = make_sgd(parameters, {.momentum = 0.9});
  set_gradients(parameters, 1);
  before->step(0.1);
  const auto without = make_sgd(parameters, {});
  without->load_state(before->state());
  set_gradients(parameters, 2);
  const at::Tensor start = parameters[0].second.detach().clone();
  without->step(0.25);
  EXPECT_TRUE(parameters[0].second.equal(start - 0.5));
  ASSERT_EQ(without->state().size(), 2u);
  EXPECT_TRUE(without->state()[0].second.equal(before->state()[0].second));
}

TEST(Optimizer, StepsEachGroupByItsOwnOptions) {
  const NamedTensors parameters = two_parameters();
  const auto sgd = make_sgd(
      {{.name = "fast", .parameters = {parameters[0]}, .options = {.lr = 0.5}},
       {.name = "slow", .parameters = {parameters[1]}, .options = {.lr = 0.25, .momentum = 0.9}}});
  set_gradients(parameters, 1);
  sgd->step();
  EXPECT_TRUE(parameters[0].second.equal(at::full({2, 3}, 0.5)));
  EXPECT_TRUE(parameters[1].second.equal(at::full({3}, -0.25)));
  EXPECT_EQ(sgd->state().size(), 1u);
  sgd->groups()[0]->options.lr = 0.125;
  sgd->step();
  EXPECT_TRUE(parameters[0].second.equal(at::full({2, 3}, 0.375)));
}

TEST(Optimizer, TakesSparseGradientsInPlainSgdOnly) {
  const NamedTensors parameters = {{"embedding", at::ones({4, 2}).set_requires_grad(true)}};
  const auto set = [&] {
    parameters[0].second.mutable_grad() =
        at::sparse_coo_tensor(at::full({1, 2}, 3, at::kLong), at::ones({2, 2}), {4, 2});
  };
  set();
  make_sgd(parameters, {.lr = 0.25})->step();
  EXPECT_TRUE(parameters[0].second.sum(1).equal(at::tensor({2.0f, 2.0f, 2.0f, 1.0f})));
  EXPECT_TRUE(contains(error_of([&] { make_sgd(parameters, {.momentum = 0.9})->step(); }),
                       "'embedding' has a sparse gradient"));
  EXPECT_TRUE(contains(error_of([&] { make_adamw(parameters, {})->step(); }),
                       "'embedding' has a sparse gradient"));
}

TEST(Optimizer, RejectsInvalidOptions) {
  const auto error = [](const OptimizerOptions& options) {
    return error_of([&] { make_sgd(two_parameters(), options); });
  };
  EXPECT_TRUE(contains(error({.lr = -1}), "group 'all': the learning rate"));
  EXPECT_TRUE(contains(error({.weight_decay = NAN}), "weight decay"));
  EXPECT_TRUE(contains(error({.nesterov = true}), "nesterov needs a momentum"));
  EXPECT_TRUE(contains(error({.beta2 = 1}), "beta2"));
  const NamedTensors shared = two_parameters();
  EXPECT_TRUE(contains(
      error_of([&] {
        make_sgd({{.name = "a", .parameters = shared}, {.name = "b", .parameters = shared}});
      }),
      "group 'b': parameter 'a.weight' is also in group 'a'"));
}

TEST(JoinedOptimizer, SavesAndLoadsTheStateOfAll) {
  const NamedTensors of_sgd = {{"a.weight", at::ones({2}).set_requires_grad(true)}},
                     of_adam = {{"b.weight", at::ones({3}).set_requires_grad(true)}};
  const auto sgd = make_sgd(of_sgd, {.momentum = 0.9}), adam = make_adam(of_adam, {});
  JoinedOptimizer joined({sgd.get(), adam.get()});
  for (const double gradient : {1.0, 2.0}) {
    set_gradients(of_sgd, gradient), sgd->step(0.1);
    set_gradients(of_adam, gradient), adam->step(0.1);
  }
  const NamedTensors state = joined.state();
  EXPECT_EQ(state.size(), sgd->state().size() + adam->state().size());
  const auto sgd_after = make_sgd(of_sgd, {.momentum = 0.9}), adam_after = make_adam(of_adam, {});
  JoinedOptimizer({sgd_after.get(), adam_after.get()}).load_state(state);
  expect_equal(sgd_after->state(), sgd->state());
  expect_equal(adam_after->state(), adam->state());
  EXPECT_EQ(joined.groups().size(), 2u);
  EXPECT_EQ(joined.record().groups[1].parameters, std::vector<std::string>{"b.weight"});
  EXPECT_EQ(joined.record().kind, "") << "sgd and adam";
}

TEST(JoinedOptimizer, MakesTheStepsOfAllWaitForAReader) {
  const NamedTensors a = {{"a", at::ones({2}).set_requires_grad(true)}},
                     b = {{"b", at::ones({2}).set_requires_grad(true)}};
  const auto first = make_sgd(a, {}), second = make_sgd(b, {});
  int waits = 0;
  JoinedOptimizer({first.get(), second.get()}).read_until([&] { ++waits; });
  first->step(0.1), second->step(0.1);
  EXPECT_EQ(waits, 2);
}

TEST(JoinedOptimizer, RejectsAParameterOfTwo) {
  const NamedTensors parameters = two_parameters();
  const auto first = make_sgd(parameters, {}), second = make_adam(parameters, {});
  try {
    JoinedOptimizer({first.get(), second.get()});
    FAIL() << "it is accepted";
  } catch (const TrainError& error) {
    EXPECT_STREQ(error.what(), "two optimizers have the parameter 'a.bias'");
  }
}

TEST(ParameterGroups, ExcludeFromDecayWhatTheRuleNames) {
  const NamedTensors parameters = {{"embed.weight", at::ones({4, 2})},
                                   {"fc.weight", at::ones({2, 2})},
                                   {"fc.bias", at::ones({2})}};
  const auto names = [&](const DecayRule& rule) {
    std::string text;
    for (const ParameterGroup& group : groups_by_decay(parameters, {.weight_decay = 0.1}, rule)) {
      text += group.name + (*group.options.weight_decay == 0 ? " 0:" : ":");
      for (const auto& [name, tensor] : group.parameters) text += " " + name;
      text += "; ";
    }
    return text;
  };
  EXPECT_EQ(names({}), "decay: embed.weight fc.weight fc.bias; ");
  EXPECT_EQ(names({.exclude_1d = true}), "decay: embed.weight fc.weight; no_decay 0: fc.bias; ");
  EXPECT_EQ(names({.excluded = {"embed*", "*.bias"}}),
            "decay: fc.weight; no_decay 0: embed.weight fc.bias; ");
  EXPECT_EQ(names({.excluded = {"*"}}), "no_decay 0: embed.weight fc.weight fc.bias; ");
  EXPECT_TRUE(contains(error_of([&] { names({.excluded = {"bias"}}); }),
                       "no parameter matches the pattern 'bias' of parameters without weight "
                       "decay; the parameters are embed.weight, "));
}

}  // namespace
}  // namespace torchbridge::train
