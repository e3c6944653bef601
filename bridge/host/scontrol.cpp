#include "bridge/host/scontrol.h"

#include <cstdio>

#include "bridge/base/env_map.h"
#include "bridge/base/host_text.h"
#include "bridge/base/message_text.h"

namespace torchbridge {

Result<std::string> scontrol(const std::string& arguments) {
  FILE* output = popen(("exec timeout 10 scontrol " + arguments + " 2>&1").c_str(), "re");
  if (output == nullptr) return Error{"cannot run scontrol"};
  std::string text;
  char buffer[4096];
  for (std::size_t size = 0; (size = fread(buffer, 1, sizeof buffer, output)) > 0;)
    text.append(buffer, size);
  const int status = pclose(output);
  if (status == 0) return text;
  return Error{formatted("scontrol {}: {}", arguments, printable(text.substr(0, text.find('\n'))))};
}

std::string scontrol_field(const std::string& line, const std::string& name) {
  const auto at = (" " + line).find(" " + name + "=");
  if (at == line.npos) return "";
  const std::string rest = line.substr(at + name.size() + 1);
  return rest.substr(0, rest.find_first_of(" \n"));
}

std::string node_addr_by_scontrol(const std::string& node) {
  const auto shown = is_host_text(node) ? scontrol("show node --oneliner " + node) : Error();
  const std::string address = shown ? scontrol_field(*shown, "NodeAddr") : "";
  return is_host_text(address) ? address : "";
}

}  // namespace torchbridge
