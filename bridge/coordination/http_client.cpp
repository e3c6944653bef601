#include "bridge/coordination/http_client.h"

#ifdef TORCHBRIDGE_CURL
#include <curl/curl.h>
#include <dlfcn.h>
#endif

#include "bridge/base/env_map.h"
#include "bridge/base/find_function.h"
#include "bridge/base/message_text.h"

namespace torchbridge {

#ifdef TORCHBRIDGE_CURL
namespace {

// The functions of libcurl.so.4 that are used, by their types in its header.
struct Curl {
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
};

constexpr std::size_t kLongestAnswer = 1 << 20;

// Fewer bytes than `size` end the request.
std::size_t append(const char* data, std::size_t, std::size_t size, void* text) {
  auto& answer = *static_cast<std::string*>(text);
  if (answer.size() + size > kLongestAnswer) return 0;
  answer.append(data, size);
  return size;
}

class CurlClient : public HttpClient {
 public:
  CurlClient(const Curl& curl, HttpSettings settings)
      : curl_(curl), settings_(std::move(settings)) {}

  Result<std::string> post(const std::string& url, const std::string& body,
                           const std::string& token) override {
    CURL* handle = curl_.easy_init();
    if (handle == nullptr) return Error{formatted("{}: cannot begin a request", url)};
    std::string answer;
    curl_slist* headers = curl_.slist_append(nullptr, "Content-Type: application/json");
    if (!token.empty()) headers = curl_.slist_append(headers, ("Authorization: " + token).c_str());
    curl_.easy_setopt(handle, CURLOPT_URL, url.c_str());
    curl_.easy_setopt(handle, CURLOPT_HTTPHEADER, headers);
    curl_.easy_setopt(handle, CURLOPT_POSTFIELDS, body.c_str());
    curl_.easy_setopt(handle, CURLOPT_WRITEFUNCTION, &append);
    curl_.easy_setopt(handle, CURLOPT_WRITEDATA, &answer);
    curl_.easy_setopt(handle, CURLOPT_TIMEOUT, static_cast<long>(settings_.timeout));
    curl_.easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
    const std::pair<CURLoption, const std::string*> files[] = {{CURLOPT_CAINFO, &settings_.ca_cert},
                                                               {CURLOPT_SSLCERT, &settings_.cert},
                                                               {CURLOPT_SSLKEY, &settings_.key}};
    for (const auto& [option, file] : files) {
      if (!file->empty()) curl_.easy_setopt(handle, option, file->c_str());
    }
    const CURLcode code = curl_.easy_perform(handle);
    long status = 0;
    curl_.easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    curl_.easy_cleanup(handle);
    curl_.slist_free_all(headers);
    if (code != CURLE_OK) return Error{url + ": " + curl_.easy_strerror(code)};
    constexpr long kOk = 200;
    if (status != kOk) return Error{formatted("{}: status {}: {}", url, status, printable(answer))};
    return answer;
  }

 private:
  Curl curl_;
  HttpSettings settings_;
};

}  // namespace

Result<std::unique_ptr<HttpClient>> HttpClient::open(HttpSettings settings) {
  void* library = dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) library = dlopen("libcurl-gnutls.so.4", RTLD_NOW | RTLD_LOCAL);
  Curl curl;
  const bool is_complete = library && find_function(library, "curl_easy_init", curl.easy_init) &&
                           find_function(library, "curl_easy_setopt", curl.easy_setopt) &&
                           find_function(library, "curl_easy_perform", curl.easy_perform) &&
                           find_function(library, "curl_easy_getinfo", curl.easy_getinfo) &&
                           find_function(library, "curl_easy_strerror", curl.easy_strerror) &&
                           find_function(library, "curl_easy_cleanup", curl.easy_cleanup) &&
                           find_function(library, "curl_slist_append", curl.slist_append) &&
                           find_function(library, "curl_slist_free_all", curl.slist_free_all);
  if (!is_complete)
    return Error{formatted("etcd needs libcurl.so.4 (Debian: libcurl4): {}", dlerror())};
  return std::unique_ptr<HttpClient>(std::make_unique<CurlClient>(curl, std::move(settings)));
}

bool HttpClient::is_built() { return true; }

#else

Result<std::unique_ptr<HttpClient>> HttpClient::open(HttpSettings) {
  return Error{
      "this torchbridge was built without libcurl's headers (Debian: libcurl4-openssl-dev), which "
      "etcd needs"};
}

bool HttpClient::is_built() { return false; }

#endif

}  // namespace torchbridge
