#include "bridge/net/passed_descriptor.h"

#include <sys/socket.h>

#include <cstring>

namespace torchbridge {
namespace {

// A message with `number` and room for one descriptor, without the padding of CMSG_SPACE, which has
// room for a second one; points into itself.
struct DescriptorMessage {
  explicit DescriptorMessage(std::uint32_t its_number) : number(its_number) {
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof control;
  }
  DescriptorMessage(const DescriptorMessage&) = delete;
  DescriptorMessage& operator=(const DescriptorMessage&) = delete;

  std::uint32_t number;
  iovec data{&number, sizeof number};
  alignas(cmsghdr) char control[CMSG_LEN(sizeof(int))] = {};
  msghdr header{};
};

}  // namespace

bool pass_descriptor(const Socket& to, int descriptor, std::uint32_t number) {
  DescriptorMessage message(number);
  cmsghdr* const rights = CMSG_FIRSTHDR(&message.header);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  return sendmsg(to.descriptor(), &message.header, MSG_DONTWAIT | MSG_NOSIGNAL) == sizeof number;
}

std::optional<PassedDescriptor> take_descriptor(const Socket& from) {
  DescriptorMessage message(0);
  if (recvmsg(from.descriptor(), &message.header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC) !=
      sizeof message.number) {
    return std::nullopt;
  }
  const cmsghdr* const rights = CMSG_FIRSTHDR(&message.header);
  int descriptor = -1;
  if (rights != nullptr && rights->cmsg_level == SOL_SOCKET && rights->cmsg_type == SCM_RIGHTS &&
      rights->cmsg_len == CMSG_LEN(sizeof descriptor))
    std::memcpy(&descriptor, CMSG_DATA(rights), sizeof descriptor);
  return PassedDescriptor{Socket(descriptor), message.number};
}

}  // namespace torchbridge
