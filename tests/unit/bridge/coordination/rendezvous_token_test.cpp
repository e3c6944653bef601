#include "bridge/coordination/rendezvous_token.h"

#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.h"

using namespace torchbridge;

namespace {

const std::string kToken = "0123456789abcdef";

class TokenFile : public testing::Test {
 protected:
  void write(const std::string& content, mode_t mode = 0600) {
    folder_.write("token", content);
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
  }
  std::string error(const std::string& path, const EnvMap& environment = {}) {
    const auto token = rendezvous_token(path, environment);
    EXPECT_FALSE(token) << "expected an error";
    return token ? "" : token.error().message;
  }
  TemporaryFolder folder_;
  const std::string path_ = folder_ / "token";
};

TEST_F(TokenFile, IsReadBeforeTheVariable) {
  write(" \n" + kToken + "\n\n");
  EXPECT_EQ(*rendezvous_token(path_, {{"TORCHBRIDGE_RDZV_TOKEN", "another token of the variable"}}),
            kToken);
  EXPECT_EQ(*rendezvous_token("", {{"TORCHBRIDGE_RDZV_TOKEN", kToken + "\n"}}), kToken);
  EXPECT_EQ(*rendezvous_token("", {}), "");
}

TEST_F(TokenFile, IsOfABoundedSize) {
  write("short");
  EXPECT_NE(error(path_).find("the token has 5 characters: expected 16 to 1024"),
            std::string::npos);
  write(std::string(1 << 20, 'x'));
  EXPECT_NE(error(path_).find("characters: expected 16 to 1024"), std::string::npos);
  // A variable that is set by a command that failed is no run without a token.
  EXPECT_NE(error("", {{"TORCHBRIDGE_RDZV_TOKEN", ""}}).find("has 0 characters"),
            std::string::npos);
  EXPECT_EQ(error("", {{"TORCHBRIDGE_RDZV_TOKEN", "secret"}}).find("secret"), std::string::npos);
}

TEST_F(TokenFile, IsOfThisUserAlone) {
  for (const mode_t mode : {0640u, 0604u, 0620u, 0602u}) {
    write(kToken, mode);
    EXPECT_NE(error(path_).find("it has the mode 06"), std::string::npos) << mode;
  }
  write(kToken, 0400);
  EXPECT_EQ(*rendezvous_token(path_, {}), kToken);
  constexpr uid_t kNobody = 65534;
  if (geteuid() != 0) GTEST_SKIP() << "another owner needs root";
  ASSERT_EQ(chown(path_.c_str(), kNobody, kNobody), 0);
  EXPECT_NE(error(path_).find("it belongs to uid 65534: "), std::string::npos) << error(path_);
}

TEST_F(TokenFile, IsAFileAndNotWhatALinkNames) {
  write(kToken);
  ASSERT_EQ(symlink(path_.c_str(), (folder_ / "link").c_str()), 0);
  ASSERT_EQ(mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  EXPECT_NE(error(folder_ / "link").find("it is a symbolic link: give the file itself"),
            std::string::npos);
  EXPECT_NE(error(folder_ / "pipe").find("it is no file"), std::string::npos)
      << "and nothing waits for its writer";
  EXPECT_NE(error(folder_ / "missing").find("No such file"), std::string::npos);
}

}  // namespace
