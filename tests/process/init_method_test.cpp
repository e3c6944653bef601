// The init methods of a process group, which a program names by URL.
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "tests/support/ranks.h"

namespace {

Words with_method(const std::string& url, const Words& more = {"--max-steps", "2"}) {
  Words options = more;
  options.insert(options.end(), {"--init-method", url});
  return trainer(options);
}

TEST(InitMethod, TcpTakesTheAddressFromTheUrl) {
  const int port = free_port();
  Ranks ranks(3, with_method("tcp://127.0.0.1:" + std::to_string(port)),
              {{"MASTER_ADDR", "192.0.2.1"}});
  expect_success(ranks);
}

TEST(InitMethod, FileIsAStoreAndIsGoneAfterwards) {
  TemporaryFolder folder;
  const std::string file = folder / "store";
  for (int run = 0; run < 2; ++run) {
    Ranks ranks(3, with_method("file://" + file), {{"MASTER_ADDR", "192.0.2.1"}});
    expect_success(ranks);
    EXPECT_FALSE(std::filesystem::exists(file));
  }
}

TEST(InitMethod, AFileThatAKilledRunLeftIsAnError) {
  TemporaryFolder folder;
  const std::string file = folder / "store";
  {
    Ranks killed(
        2, with_method("file://" + file, {"--epochs", "1000", "--metrics", folder / "curve"}));
    ASSERT_TRUE(eventually([&] {
      return std::filesystem::exists(folder / "curve") &&
             std::filesystem::file_size(folder / "curve") > 0;
    }));
    killed.kill_rank(0, SIGKILL);
    killed.kill_rank(1, SIGKILL);
    killed.wait();
  }
  ASSERT_TRUE(std::filesystem::exists(file));
  Ranks ranks(2, with_method("file://" + file));
  expect_one_line(ranks,
                  "file://" + file + "; remove the file if it is left from a run that was killed");
}

TEST(InitMethod, AFileThatCannotBeWrittenIsNamed) {
  Ranks ranks(1, with_method("file:///no/such/folder/store"));
  expect_success(ranks);  // a single rank needs no store
  for (const std::string path : {"/no/such/folder/store", "/tmp"}) {
    Ranks two(2, with_method("file://" + path));
    expect_one_line(two, "trainer: rank 0: file://" + path + ": ");
  }
}

TEST(InitMethod, AFileThatIsNoStoreIsNamed) {
  TemporaryFolder folder;
  for (const std::string& content :
       {std::string("these are my notes\n"), std::string(5000, '\xff'), std::string(3, '\0')}) {
    folder.write("notes", content);
    ASSERT_EQ(chmod((folder / "notes").c_str(), 0600), 0);
    Ranks ranks(2, with_method("file://" + (folder / "notes").string()));
    expect_one_line(ranks, "notes: it is not a store file");
    EXPECT_EQ(folder.read("notes"), content);
  }
}

TEST(InitMethod, AFileOfAnotherUserIsRejected) {
  if (geteuid() != 0) GTEST_SKIP() << "only root gives a file to another user";
  TemporaryFolder folder;
  folder.write("theirs", "");
  ASSERT_EQ(chown((folder / "theirs").c_str(), 1, 1), 0);
  Ranks ranks(2, with_method("file://" + (folder / "theirs").string()));
  expect_one_line(ranks,
                  "theirs: it belongs to uid 1: give a file that this user alone can read and "
                  "write (chmod 600)");
}

// A run in which only rank 1 joined left the file.
TEST(InitMethod, AFileWithoutRankZeroIsNamed) {
  TemporaryFolder folder;
  const std::string url = "file://" + (folder / "store").string();
  Ranks alone({1}, 2, 1, with_method(url, {"--timeout", "1"}));
  expect_one_line(alone,
                  "rank 0 of 2 did not join at " + url +
                      " within 1 s; check that it was started and that its node sees this file");
  Ranks ranks(2, with_method(url, {"--timeout", "3"}));
  expect_one_line(ranks, "another process is already rank 1 of the run 'none' at " + url +
                             "; remove the file if it is left");
}

TEST(InitMethod, EnvUsesTheVariablesAlone) {
  Ranks ranks(2, with_method("env://"));
  expect_success(ranks);
}

TEST(InitMethod, AContradictionShowsBothValues) {
  Ranks ranks(1, with_method("tcp://127.0.0.1:29500?world_size=4"));
  expect_one_line(ranks, "the world size is 4 in the init method, but 1 in WORLD_SIZE");
}

TEST(InitMethod, RejectsUnknownOrUnusableMethods) {
  for (const auto& [url, expected] :
       std::map<std::string, std::string>{{"etcd://n0:2379", "expected env://, tcp://HOST:PORT"},
                                          {"slurm://", "start the program with srun"},
                                          {"mpi://", "was not started by mpirun"},
                                          {"pmix://", "PMIX_NAMESPACE is not set"}}) {
    Ranks ranks(1, with_method(url));
    expect_one_line(ranks, expected);
  }
}

}  // namespace
