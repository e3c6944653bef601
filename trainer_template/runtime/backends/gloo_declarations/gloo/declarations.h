// What ProcessGroupGloo.hpp must see of gloo, whose headers the libtorch wheel does not ship.
//
// Only pointers to these types cross between our code and libtorch, which makes and uses the
// objects. Nothing here may be constructed, derived from or called by us; train.links compares
// the trainer with libtorch. The folder is in the include path of the sources that make gloo's
// backend or ask for its kind, and of programs of tests.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
  std::chrono::milliseconds getTimeout() const;
};

namespace transport {
class Device;
class UnboundBuffer;
}  // namespace transport

namespace rendezvous {

class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) = 0;
};

}  // namespace rendezvous
}  // namespace gloo
