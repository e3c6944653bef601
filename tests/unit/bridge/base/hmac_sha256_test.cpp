#include "bridge/base/hmac_sha256.h"

#include <gtest/gtest.h>

#include "bridge/base/hex_text.h"

namespace torchbridge {
namespace {

// The examples of FIPS 180-4 (csrc.nist.gov, "SHA256.pdf" of the examples with intermediate
// values), and the empty text of NIST's CAVP.
TEST(Sha256, AgreesWithTheExamplesOfItsStandard) {
  const struct {
    std::string text, digest;
  } kCases[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(1'000'000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
  };
  for (const auto& test : kCases)
    EXPECT_EQ(hex_of(sha256(test.text)), test.digest) << test.text.substr(0, 60);
}

// Where the padding needs one block more, and where it does not; by sha256sum of coreutils.
TEST(Sha256, PadsTextsOfEachLength) {
  const struct {
    std::size_t length;
    std::string digest;
  } kCases[] = {
      {55, "9f4390f8d30c2dd92ec9f095b65e2b9ae9b0a925a5258e241c9f1e910f734318"},
      {56, "b35439a4ac6f0948b6d6f9e3c6af0f5f590ce20f1bde7090ef7970686ec6738a"},
      {63, "7d3e74a05d7db15bce4ad9ec0658ea98e3f06eeecf16b4c6fff2da457ddc2f34"},
      {64, "ffe054fe7ae0cb6dc65c3af9b61d5209f439851db43d0ba5997337df154668eb"},
      {65, "635361c48bb9eab14198e76ea8ab7f1a41685d6ad62aa9146d301d4f17eb0ae0"},
  };
  for (const auto& test : kCases)
    EXPECT_EQ(hex_of(sha256(std::string(test.length, 'a'))), test.digest) << test.length;
}

// RFC 4231, section 4: test cases 1 to 4, 6 and 7.
TEST(HmacSha256, AgreesWithRfc4231) {
  std::string counting;
  for (char byte = 1; byte <= 0x19; ++byte) counting += byte;
  const struct {
    std::string key, text, code;
  } kCases[] = {
      {std::string(20, '\x0b'), "Hi There",
       "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
      {"Jefe", "what do ya want for nothing?",
       "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
      {std::string(20, '\xaa'), std::string(50, '\xdd'),
       "773ea91e36800e46854db8ebd09181a72959098b3ef8c122d9635514ced565fe"},
      {counting, std::string(50, '\xcd'),
       "82558a389a443c0ea4cc819899f2083a85f0faa3e578f8077a2e3ff46729665b"},
      {std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First",
       "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
      {std::string(131, '\xaa'),
       "This is a test using a larger than block-size key and a larger than block-size data. The "
       "key needs to be "
       "hashed "
       "before being used by the HMAC algorithm.",
       "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
  };
  for (const auto& test : kCases)
    EXPECT_EQ(hex_of(hmac_sha256(test.key, test.text)), test.code) << test.text;
}

}  // namespace
}  // namespace torchbridge
