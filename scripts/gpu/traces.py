"""What a trace of torch's profiler (Chrome's JSON format) shows of the GPU."""

import dataclasses
import json

ON_GPU = ("kernel", "gpu_memcpy", "gpu_memset")
WAITS = ("cudaDeviceSynchronize", "cudaStreamSynchronize", "cudaEventSynchronize")


@dataclasses.dataclass
class TraceSummary:
    """Of the traced steps: kernels and waits of the host a step, the share of time in which the GPU computes or copies,
    and the longest time between two of its operations, in microseconds."""
    kernels: float
    waits: float
    busy: float
    longest_gap_us: float

    def __str__(self):
        return (f"{self.kernels:.0f} kernels and {self.waits:.1f} waits a step, GPU busy {100 * self.busy:.1f} %, "
                f"longest gap {self.longest_gap_us:.0f} us")


def summary_of(file, steps):
    """Of a trace of so many steps. Raises ValueError where it has no kernel."""
    events = [event for event in json.loads(file.read_text())["traceEvents"] if event.get("ph") == "X"]
    spans = sorted((float(event["ts"]), float(event["ts"]) + float(event["dur"]))
                   for event in events if event.get("cat") in ON_GPU)
    if not spans:
        raise ValueError(f"{file.name} has no kernel")
    busy = gap = 0.0
    end = spans[0][0]
    for begin, finish in spans:
        gap = max(gap, begin - end)
        busy += max(0.0, finish - max(begin, end))
        end = max(end, finish)
    return TraceSummary(kernels=sum(event.get("cat") == "kernel" for event in events) / steps,
                        waits=sum(event.get("name") in WAITS for event in events) / steps,
                        busy=busy / (end - spans[0][0]), longest_gap_us=gap)
