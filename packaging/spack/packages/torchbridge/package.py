# SPDX-License-Identifier: Apache-2.0
# scripts/packages writes the checksum of the source that it makes. Get that file first: it is looked for in the current
# folder.
import os

from spack.package import *


class Torchbridge(CMakePackage):
    """Starts distributed PyTorch programs by Slurm, OpenMPI and MPICH with the environment that torchrun gives them,
    and with torchrun's restarts."""

    manual_download = True
    url = "file://{0}/torchbridge-0.1.0.tar.gz".format(os.getcwd())

    license("Apache-2.0", checked_by="torchbridge")

    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    variant("slurm", default=False, description="Build the SPANK plugin for the Slurm that Spack knows")
    variant("pmix", default=False, description="Ask PMIx, which jsrun and OpenMPI without TCP between nodes need")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("cli11", type="build")
    depends_on("nlohmann-json", type="build")
    depends_on("curl", type="build")  # its headers; the library is opened where a run uses etcd
    depends_on("slurm", when="+slurm")
    depends_on("pmix@4:", when="+pmix")

    conflicts("%gcc@:10", msg="torchbridge needs C++20")

    def cmake_args(self):
        args = [
            self.define("TORCHBRIDGE_TORCH", False),
            self.define("TORCHBRIDGE_MPI", False),
            self.define("TORCHBRIDGE_TESTS", False),
            self.define_from_variant("TORCHBRIDGE_SLURM", "slurm"),
            self.define_from_variant("TORCHBRIDGE_PMIX", "pmix"),
        ]
        return args

    def setup_run_environment(self, env):
        env.prepend_path("MANPATH", self.prefix.share.man)
