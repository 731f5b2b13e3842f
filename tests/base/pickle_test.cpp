#include "base/pickle.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace fsdplan {
namespace {

using pickle::Type;
using pickle::Value;
using namespace std::string_literals;

std::string fault_of(const std::string& bytes) {
    try {
        const pickle::Document document(bytes, "x.pickle");
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

// pickle.dumps({"a": [1, -2, 300, 70000, 2**40, -2**40, 1.5, None, True], "b": (), "c": ("d", "e")},
// protocol)
const std::string protocol2 =
    "\x80\x02}q\x00(X\x01\x00\x00\x00"
    "aq\x01]q\x02(K\x01J\xfe\xff\xff\xffM,\x01Jp\x11\x01\x00\x8a\x06\x00\x00\x00\x00\x00\x01\x8a\x06\x00\x00"
    "\x00\x00\x00\xffG?\xf8\x00\x00\x00\x00\x00\x00N\x88"
    "eX\x01\x00\x00\x00"
    "bq\x03)X\x01\x00\x00\x00"
    "cq\x04X\x01\x00\x00\x00"
    "dq\x05X\x01\x00\x00\x00"
    "eq\x06\x86q\x07u."s;

TEST(Pickle, ReadsPlainData) {
    const pickle::Document document(protocol2, "x.pickle");
    const std::vector<Value> list = document.root().at("a").elements();
    ASSERT_EQ(list.size(), 9U);
    EXPECT_EQ(list[0].integer(), 1);
    EXPECT_EQ(list[1].integer(), -2);
    EXPECT_EQ(list[2].integer(), 300);
    EXPECT_EQ(list[3].integer(), 70000);
    EXPECT_EQ(list[4].integer(), std::int64_t{1} << 40U);
    EXPECT_EQ(list[5].integer(), -(std::int64_t{1} << 40U));
    EXPECT_EQ(list[6].number(), 1.5);
    EXPECT_EQ(list[7].type(), Type::none);
    EXPECT_TRUE(list[8].boolean());
    EXPECT_TRUE(document.root().at("b").elements().empty());
    EXPECT_EQ(document.root().at("c").elements()[1].string(), "e");
    EXPECT_FALSE(document.root().find("d"));
}

TEST(Pickle, SharedValuesAndFramesAreFine) {
    // pickle.dumps with protocol 4 of [x, x] with x = "ab": a frame, MEMOIZE and BINGET.
    const std::string text =
        "\x80\x04\x95\x0d\x00\x00\x00\x00\x00\x00\x00]\x94(\x8c\x02"
        "ab\x94h\x01"
        "e."s;
    const pickle::Document document(text, "x.pickle");
    EXPECT_EQ(document.root().elements()[0].string(), "ab");
    EXPECT_EQ(document.root().elements()[1].string(), "ab");
}

TEST(Pickle, AListMayContainItself) {
    const pickle::Document document("\x80\x02]q\x00h\x00"s + "a.", "x.pickle");
    EXPECT_EQ(document.root().elements()[0].elements().size(), 1U);
}

TEST(Pickle, TheLastOfEqualKeysCounts) {
    const pickle::Document document("\x80\x02}(X\x01\x00\x00\x00kK\x01X\x01\x00\x00\x00kK\x02u."s,
                                    "x.pickle");
    EXPECT_EQ(document.root().at("k").integer(), 2);
}

TEST(Pickle, RefusesWhatIsNoPlainDataAndNamesTheByte) {
    EXPECT_EQ(fault_of("\x80\x02"s + "cos\nsystem\n."),
              "x.pickle at byte 2: opcode 99; expected plain data: no classes, no calls, no byte strings");
    EXPECT_EQ(fault_of("\x80\x06N."s), "x.pickle at byte 0: protocol 6; expected 2 to 5");
    EXPECT_EQ(fault_of("(dp0\n."), "x.pickle at byte 0: is no pickle of protocol 2 to 5");
    EXPECT_EQ(fault_of(""), "x.pickle at byte 0: is no pickle of protocol 2 to 5");
}

TEST(Pickle, RefusesWhatDoesNotAddUp) {
    EXPECT_EQ(fault_of("\x80\x02."s), "x.pickle at byte 2: a pickle ends with one value, here are 0");
    EXPECT_EQ(fault_of("\x80\x02NN."s), "x.pickle at byte 4: a pickle ends with one value, here are 2");
    EXPECT_EQ(fault_of("\x80\x02"s + "a."), "x.pickle at byte 2: takes a value where there is none");
    EXPECT_EQ(fault_of("\x80\x02(\x85."s), "x.pickle at byte 3: takes a value where there is none");
    EXPECT_EQ(fault_of("\x80\x02t."s), "x.pickle at byte 2: takes values back to a mark where there is none");
    EXPECT_EQ(fault_of("\x80\x02h\x00."s), "x.pickle at byte 2: memo number 0 was never set");
    EXPECT_EQ(fault_of("\x80\x02Nq\x01."s), "x.pickle at byte 3: memo number 1 out of order");
    EXPECT_EQ(fault_of("\x80\x02NK\x01"s + "a."), "x.pickle at byte 5: adds to None as if it were a list");
    EXPECT_EQ(fault_of("\x80\x02}(Nu."s), "x.pickle at byte 5: a dict with a key without a value");
    EXPECT_EQ(fault_of("\x80\x02\x8a\x09"s + std::string(9, '\1') + "."),
              "x.pickle at byte 2: an integer of more than 64 bits");
    EXPECT_EQ(fault_of("\x80\x02"s + std::string(65, '(')), "x.pickle at byte 66: is nested deeper than 64");
}

TEST(Pickle, EveryCutOffPickleIsAnError) {
    for (std::size_t size = 0; size < protocol2.size(); ++size) {
        EXPECT_THROW(pickle::Document(protocol2.substr(0, size), "x"), Error) << size;
    }
}

TEST(Pickle, IntegersAreTwosComplementOfAnyLength) {
    const auto integer = [](const std::string& bytes) {
        return pickle::Document(
                   "\x80\x02\x8a" + std::string(1, static_cast<char>(bytes.size())) + bytes + ".", "x")
            .root()
            .integer();
    };
    EXPECT_EQ(integer(""), 0);
    EXPECT_EQ(integer("\xff"), -1);
    EXPECT_EQ(integer("\xff\x00"s), 255);
    EXPECT_EQ(integer("\x00\x00\x00\x00\x00\x00\x00\x80"s), std::numeric_limits<std::int64_t>::min());
}

TEST(Pickle, AValueOfAnotherTypeIsAnErrorWithItsPlace) {
    const pickle::Document document("\x80\x02K\x01."s, "x.pickle");
    try {
        document.root().string();
        FAIL() << "an integer was taken for a string";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "x.pickle at byte 2: expected a string, found an integer");
    }
}

// What torch.save writes for an OrderedDict with a state, at protocol 2.
const std::string ordered_dict =
    "\x80\x02"
    "ccollections\nOrderedDict\nq\x00)Rq\x01X\x01\x00\x00\x00wq\x02K\x07s}q\x03X\x01\x00\x00\x00mq\x04Nsb."s;

TEST(PickleOfCalls, MakesNoCallAndKeepsContentsAndState) {
    const pickle::Document document(ordered_dict, "x.pickle", pickle::Content::calls);
    const Value call = document.root();
    EXPECT_TRUE(call.calls("collections.OrderedDict"));
    EXPECT_FALSE(call.calls("collections.OrderedDic"));
    EXPECT_EQ(call.name(), "collections.OrderedDict");
    EXPECT_EQ(call.arguments().size(), 0U);
    ASSERT_TRUE(call.contents());
    EXPECT_EQ(call.contents()->at("w").integer(), 7);
    EXPECT_EQ(call.attribute_at("m").type(), Type::none);
    EXPECT_FALSE(call.attribute("w"));
    EXPECT_EQ(document.all(Type::name).size(), 1U);
}

TEST(PickleOfCalls, ReadsNamesBytesAndPersistentReferences) {
    // Protocol 4: (STACK_GLOBAL "torch" "float32", b"ab", persistent ("storage",)).
    const pickle::Document document(
        "\x80\x04\x8c\x05torch\x8c\x07"
        "float32\x93"
        "C\x02"
        "ab\x8c\x07storage\x85Q\x87."s,
        "x.pickle", pickle::Content::calls);
    const std::vector<Value> parts = document.root().elements();
    EXPECT_TRUE(parts[0].is_name("torch.float32"));
    EXPECT_EQ(parts[1].type(), Type::bytes);
    EXPECT_EQ(parts[2].type(), Type::persistent);
    EXPECT_EQ(parts[2].arguments().element(0).string(), "storage");
}

TEST(PickleOfCalls, RefusesWhatNoCheckpointHas) {
    const auto fault = [](const std::string& bytes) {
        try {
            const pickle::Document document("\x80\x02"s + bytes, "x", pickle::Content::calls);
        } catch (const Error& error) {
            return std::string(error.what());
        }
        return "accepted"s;
    };
    EXPECT_EQ(fault("0."), "x at byte 2: opcode 48, which no checkpoint needs");
    EXPECT_EQ(fault("cos\nsystem"), "x at byte 2: the pickle is cut off");
    EXPECT_EQ(fault("N)\x93."), "x at byte 4: a name made of None");
    EXPECT_EQ(fault("cos\nsystem\nNR."), "x at byte 14: a call with None in place of a tuple of arguments");
    EXPECT_EQ(fault("N}b."), "x at byte 4: sets the state of None");
    EXPECT_EQ(fault("cos\nsystem\n)RNNs]a."), "x at byte 19: adds to a dict as if it were a list");
}

TEST(Pickle, AListGrowsByManySmallSteps) {
    std::string bytes = "\x80\x02]"s;
    for (int i = 0; i < 1000; ++i) {
        bytes += i % 2 == 0 ? "Na"s : "(NNe"s;
    }
    EXPECT_EQ(pickle::Document(bytes + ".", "x").root().elements().size(), 1500U);
}

}  // namespace
}  // namespace fsdplan
