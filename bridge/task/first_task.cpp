#include <torchbridge/task/first_task.h>

#include <torchbridge/net/node_gathering.h>

namespace torchbridge {

Result<std::string> by_first_task(const Layout& at, const std::string& purpose, const std::string& word,
                                  std::chrono::milliseconds timeout, const FirstTask& act) {
  constexpr const char *kDone = "done ", *kFailed = "failed";
  if (at.local_world_size == 1) return act({word});
  Result<std::string> done = std::string();
  Beyond beyond;
  beyond.answer = [&](const std::vector<std::string>& words) -> Result<std::vector<std::string>> {
    done = act(words);
    return std::vector{done ? kDone + *done : std::string(kFailed)};
  };
  const std::string key = purpose + "/" + std::to_string(at.node_rank);
  const auto answer = gather_on_node(key, at.local_rank, at.local_world_size, word, timeout, beyond);
  if (!done) return done;
  if (!answer) return answer.error();
  if (answer->front() == kFailed) return Error::elsewhere();
  return answer->front().substr(std::string_view(kDone).size());
}

}  // namespace torchbridge
