// POST requests with JSON bodies, by libcurl, which is opened when it is needed.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "bridge/base/result.h"

namespace torchbridge {

struct HttpSettings {
  std::string ca_cert, cert, key;  // files, or empty
  int timeout = 60;                // seconds, of a request
};

class HttpClient {
 public:
  // An error where libcurl is missing.
  static Result<std::unique_ptr<HttpClient>> open(HttpSettings settings);
  static bool is_built();  // with libcurl's headers
  virtual ~HttpClient() = default;

  // The answer's body; an error with the reason, or with the status and the body where the status
  // is not 200.
  virtual Result<std::string> post(const std::string& url, const std::string& body,
                                   const std::string& token) = 0;
};

}  // namespace torchbridge
