// NCCL of an old version, of which it has the number alone. Preloaded.
__attribute__((visibility("default"))) int ncclGetVersion(int* version) {
  *version = 21805;
  return 0;
}
