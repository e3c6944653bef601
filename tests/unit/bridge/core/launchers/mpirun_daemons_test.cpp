// The variables with OpenMPI's daemons, recorded and malformed.
#include "bridge/core/launchers/mpirun_daemons.h"

#include <gtest/gtest.h>

#include "bridge/core/launchers/launchers.h"
#include "tests/support/recorded_environment.h"

namespace torchbridge {
namespace {

using Names = std::vector<std::string>;

// What PMIx 7 (OpenMPI 6) sets of the server's address, in the environment of another release.
EnvMap with_servers_of_pmix7(const EnvMap& recorded) {
  EnvMap environment;
  for (const auto& [name, value] : recorded) {
    if (name != "PMIX_SERVER_URI2") environment.set(name, value);
  }
  for (const char* version : {"21", "3", "4", "41", "51", "61"}) {
    environment.set(std::string("PMIX_SERVER_URI") + version, *recorded.get("PMIX_SERVER_URI2"));
  }
  return environment;
}

TEST(MpirunDaemons, AreReadAsRecorded) {
  const auto first = read_mpirun_daemons(recorded_environment("openmpi-4.1-2n3t", 0));
  const auto last = read_mpirun_daemons(recorded_environment("openmpi-4.1-2n3t", 2));
  ASSERT_TRUE(first);
  ASSERT_TRUE(last);
  EXPECT_EQ(first->secret, last->secret);
  EXPECT_TRUE(first->on_mpirun_host);
  EXPECT_FALSE(last->on_mpirun_host);
  for (const auto& daemons : {*first, *last}) EXPECT_EQ(daemons.mpirun_host, Names{"10.77.0.10"});
  EXPECT_EQ(first->nodes, Names{});  // not known where mpirun runs
  EXPECT_EQ(last->nodes, (Names{"n0", "n1"}));
}

TEST(MpirunDaemons, MpirunsHostIsIdleWhereOtherNodesHaveAllRanks) {
  EnvMap environment = recorded_environment("openmpi-4.1-2n3t", 2);
  EXPECT_FALSE(read_mpirun_daemons(environment)->mpirun_host_is_idle);
  environment.set("OMPI_MCA_orte_num_nodes", "1");
  EXPECT_TRUE(read_mpirun_daemons(environment)->mpirun_host_is_idle);
  EXPECT_EQ(read_mpirun_daemons(environment)->nodes, Names{"n1"});
}

TEST(MpirunDaemons, OfOpenMpi5OnlyMpirunsHostIsKnown) {
  const auto first = read_mpirun_daemons(recorded_environment("openmpi-5.0-2n3t", 0));
  const auto last = read_mpirun_daemons(recorded_environment("openmpi-5.0-2n3t", 2));
  ASSERT_TRUE(first);
  ASSERT_TRUE(last);
  EXPECT_EQ(first->secret, last->secret);
  EXPECT_TRUE(first->on_mpirun_host);
  EXPECT_FALSE(last->on_mpirun_host);
  for (const auto& daemons : {*first, *last}) {
    EXPECT_EQ(daemons.mpirun_host, Names{"n0"});
    EXPECT_EQ(daemons.nodes, Names{});
  }
  EnvMap another = recorded_environment("openmpi-5.0-2n3t", 2);
  another.set("PMIX_NAMESPACE", "prterun-n0-17790@1");  // and the daemon's is still that of 17789
  EXPECT_FALSE(read_mpirun_daemons(another));
}

TEST(MpirunDaemons, TheServersAddressBearsAnyVersion) {
  for (const int rank : {0, 2}) {
    const EnvMap recorded = recorded_environment("openmpi-5.0-2n3t", rank),
                 newer = with_servers_of_pmix7(recorded);
    const auto daemons = read_mpirun_daemons(newer);
    ASSERT_TRUE(daemons) << "rank " << rank;
    EXPECT_EQ(daemons->on_mpirun_host, rank == 0);
    EXPECT_EQ(read_openmpi(newer)->node_key, read_openmpi(recorded)->node_key);
    // An mpirun of another release inside this one leaves variables that it does not know as they
    // are.
    EnvMap inner = newer;
    inner.set("PMIX_SERVER_URI61", "prterun-n0-1@0.0;tcp4://127.0.0.1:1");
    ASSERT_TRUE(read_mpirun_daemons(inner)) << "rank " << rank;
    EXPECT_EQ(read_mpirun_daemons(inner)->on_mpirun_host, rank == 0);
  }
}

// That of OpenMPI 5 follows from mpirun's host and pid, which other users see.
TEST(MpirunDaemons, GiveATokenWhereItIsRandom) {
  EnvMap environment = recorded_environment("openmpi-4.1-2n3t", 2);
  environment.set("OMPI_MCA_orte_precondition_transports", "8ab9e0efaf4826c6-b979a31b6ee930f");
  EXPECT_EQ(token_of_mpirun(environment), "8ab9e0efaf4826c60b979a31b6ee930f");
  environment.set("OMPI_MCA_orte_precondition_transports", "");
  EXPECT_EQ(token_of_mpirun(environment), "");
  EXPECT_EQ(token_of_mpirun({}), "");
  EXPECT_EQ(token_of_mpirun(recorded_environment("openmpi-5.0-2n3t", 0)), "");
}

TEST(MpirunDaemons, AreHostsInTheNamesOfOpenMpi5) {
  const struct {
    const char *name_space, *host;  // null where it is an error
  } kCases[] = {
      {"prterun-n0-17789@1", "n0"}, {"prte-gpu-7.site.org-5@2", "gpu-7.site.org"},
      {"1457848321", ""},           {"", ""},
      {"slurm.pmix.5.0", ""},       {"prterun-17789@1", ""},
      {"prterun--17789@1", ""},     {"prterun-n0-x@1", ""},
      {"prterun-n0-17789", ""},     {"other-n0-17789@1", ""},
  };
  for (const auto& test : kCases) {
    const auto host = parse_prrte_host(test.name_space);
    EXPECT_EQ(host ? *host : "", test.host) << test.name_space;
  }
  EXPECT_EQ(parse_prrte_host("1457848321").error().message,
            "PMIX_NAMESPACE='1457848321': expected prterun-HOST-PID@JOB");
}

TEST(MpirunDaemons, AMalformedSecretOrAddressGivesNothing) {
  const EnvMap recorded = recorded_environment("openmpi-4.1-2n3t", 2);
  const char *kSecret = "OMPI_MCA_orte_precondition_transports", *kMpirun = "OMPI_MCA_orte_hnp_uri";
  for (const auto& [name, value] : {std::pair{kSecret, ""},
                                    {kSecret, "0-0"},
                                    {kSecret, "12"},
                                    {kSecret, "xy-zz"},
                                    {kSecret, "1-"},
                                    {kSecret, "-1-2"},
                                    {kSecret, "11112222333344445-1"},
                                    {kMpirun, ""},
                                    {kMpirun, "no address"}}) {
    EnvMap environment = recorded;
    environment.set(name, value);
    EXPECT_FALSE(read_mpirun_daemons(environment)) << name << "=" << value;
  }
  EnvMap environment = recorded;
  environment.set("OMPI_MCA_orte_node_regex", "n[1:0-");
  const auto daemons = read_mpirun_daemons(environment);
  ASSERT_TRUE(daemons);
  EXPECT_EQ(daemons->nodes, Names{});
}

TEST(MpirunDaemons, HaveAddressesOfBothFamilies) {
  const struct {
    const char* uri;
    Names addresses;  // empty where it is an error
  } kCases[] = {
      {"1056768000.0;tcp://10.77.0.10:36029", {"10.77.0.10"}},
      {"1966211072.0;tcp://192.0.2.2,10.77.0.1:55931;tcp6://[fd00::2]:41921",
       {"192.0.2.2", "10.77.0.1", "fd00::2"}},
      {"1.0;tcp6://[fd00::2],[fd00::3]:41921", {"fd00::2", "fd00::3"}},
      {"1.0", {}},
      {"1.0;", {}},
      {"1.0;tcp://:36029", {}},
      {"1.0;tcp://10.77.0.10", {}},
      {"1.0;tcp://10.77.0.10,:1", {}},
      {"1.0;tcp://host:1", {}},
      {"1.0;usock://10.77.0.10:1", {}},
  };
  for (const auto& test : kCases) {
    const auto addresses = parse_orte_addresses(test.uri);
    EXPECT_EQ(static_cast<bool>(addresses), !test.addresses.empty()) << test.uri;
    if (addresses) {
      EXPECT_EQ(*addresses, test.addresses) << test.uri;
    }
  }
  EXPECT_EQ(parse_orte_addresses("1.0;tcp://host:1").error().message,
            "daemon's address '1.0;tcp://host:1': expected ID;tcp://ADDRESS,...:PORT;...");
}

TEST(MpirunDaemons, AreReadAsTheRegexComponentWritesThem) {
  const struct {
    const char* regex;
    Names nodes;
  } kCases[] = {
      {"n[1:0-1]@0(2)", {"n0", "n1"}},
      {"n[1:0,2,1,3]@0(4)", {"n0", "n2", "n1", "n3"}},
      {"vm,n[1:0-1]@0(3)", {"vm", "n0", "n1"}},
      {"node[3:8-10,99]-ib,login@0(5)",
       {"node008-ib", "node009-ib", "node010-ib", "node099-ib", "login"}},
      {"[2:1-2]a@0(2)", {"01a", "02a"}},
      {"a@4294967295,0", {"a"}},
  };
  for (const auto& test : kCases) {
    const auto nodes = parse_orte_nodes(test.regex);
    ASSERT_TRUE(nodes) << nodes.error().message;
    EXPECT_EQ(*nodes, test.nodes) << test.regex;
  }
}

TEST(MpirunDaemons, MalformedNodesAreRejected) {
  const struct {
    const char *regex, *message;
  } kCases[] = {
      {"", "node list '': expected NAMES@DAEMONS"},
      {"n[1:0-1]", "node list 'n[1:0-1]': expected NAMES@DAEMONS"},
      {"@0(2)", "node list '@0(2)': expected NAMES@DAEMONS"},
      {"n[0-1]@0(2)", "node list 'n[0-1]@0(2)': expected [DIGITS:NUMBERS]"},
      {"n[1:0-1@0(2)", "node list 'n[1:0-1@0(2)': expected [DIGITS:NUMBERS]"},
      {"n[x:0-1]@0(2)", "node list 'n[x:0-1]@0(2)': expected [DIGITS:NUMBERS]"},
  };
  for (const auto& test : kCases) {
    const auto nodes = parse_orte_nodes(test.regex);
    ASSERT_FALSE(nodes) << test.regex;
    EXPECT_EQ(nodes.error().message, test.message);
  }
  for (const char* regex : {"n[1:]@0", "n[1:-3]@0", "n[1:3-]@0", "n[1:3-1]@0", "n[1:1,,2]@0",
                            "a,,b@0", "a b@0", "n[1:0-9999999]@0", "n]@0"}) {
    EXPECT_FALSE(parse_orte_nodes(regex)) << regex;
  }
}

}  // namespace
}  // namespace torchbridge
