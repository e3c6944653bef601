"""Megatron Core on CPUs: two layers, tensor parallel in each pair of ranks, and data parallel over the pairs."""
import os

import torch
import torch.distributed as dist
from megatron.core import ModelParallelConfig, parallel_state, tensor_parallel

dist.init_process_group("gloo")
parallel_state.initialize_model_parallel(tensor_model_parallel_size=2)
config = ModelParallelConfig(tensor_model_parallel_size=2, use_cpu_initialization=True, params_dtype=torch.float32)
torch.manual_seed(0)
init = {"config": config, "init_method": torch.nn.init.normal_, "bias": False}
first = tensor_parallel.ColumnParallelLinear(4, 8, gather_output=False, **init)
second = tensor_parallel.RowParallelLinear(8, 1, input_is_parallel=True, skip_bias_add=False, **init)
parameters = [first.weight, second.weight]
optimizer = torch.optim.SGD(parameters, lr=0.01)
inputs = torch.randn(64, 4)
steps, pair = 4, parallel_state.get_data_parallel_rank()
for step in range(steps):
    begin = (step * 2 + pair) * 8
    optimizer.zero_grad()
    second(first(inputs[begin:begin + 8])[0])[0].square().mean().backward()
    for parameter in parameters:
        dist.all_reduce(parameter.grad, group=parallel_state.get_data_parallel_group())
        parameter.grad /= parallel_state.get_data_parallel_world_size()
    optimizer.step()
total = first.weight.detach().square().sum() + second.weight.detach().square().sum()
dist.all_reduce(total, group=parallel_state.get_tensor_model_parallel_group())
os.write(1, f"rank {dist.get_rank()} of {dist.get_world_size()}: {steps} steps, {total.item()!r}\n".encode())
dist.destroy_process_group()
