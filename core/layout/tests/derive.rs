//! What `#[derive(Persist)]` accepts, in a crate that forbids unsafe code, and what its type
//! numbers depend on.
#![forbid(unsafe_code)]

use holdfast_layout::{Persist, Ptr, RawPtr, TypeNumber, bytemuck};

/// The derive's way to the trait may be overridden, as a re-exporting crate has to.
mod home {
    pub(crate) use holdfast_layout::{Persist, TypeNumber, bytemuck};
}

#[derive(Debug, Clone, Copy, PartialEq, Persist)]
#[repr(C)]
struct Account {
    balance: i64,
    next: Ptr<Account>,
    owner: [u8; 12],
    r#type: u32,
}

#[derive(Clone, Copy, Persist)]
#[repr(transparent)]
struct Wrapped<T>(T);

#[derive(Clone, Copy, Persist)]
#[repr(transparent)]
struct Block<const N: usize> {
    bytes: [u8; N],
}

#[derive(Clone, Copy, Persist)]
#[repr(C, packed)]
#[persist(crate = "crate::home")]
struct Packed(u8, u32, f64);

#[derive(Clone, Copy, Persist)]
#[repr(C, align(64))]
struct Line {
    words: [u64; 8],
}

mod renamed {
    use holdfast_layout::Persist;

    #[derive(Clone, Copy, Persist)]
    #[repr(C)]
    #[persist(name = "Account")]
    pub(crate) struct Konto {
        balance: i64,
        next: holdfast_layout::Ptr<super::Account>,
        owner: [u8; 12],
        r#type: u32,
    }
    #[derive(Clone, Copy, Persist)]
    #[repr(C)]
    #[persist(name = "Account", version = 2)]
    pub(crate) struct Newer {
        balance: i64,
        next: holdfast_layout::Ptr<super::Account>,
        owner: [u8; 12],
        r#type: u32,
    }
    #[derive(Clone, Copy, Persist)]
    #[repr(C)]
    #[persist(name = "Account")]
    pub(crate) struct Swapped {
        next: holdfast_layout::Ptr<super::Account>,
        balance: i64,
        owner: [u8; 12],
        r#type: u32,
    }
    #[derive(Clone, Copy, Persist)]
    #[repr(C)]
    #[persist(name = "Account")]
    pub(crate) struct Retyped {
        balance: u64,
        next: holdfast_layout::Ptr<super::Account>,
        owner: [u8; 12],
        r#type: u32,
    }
}

#[test]
fn the_number_names_name_version_fields_offsets_and_types() {
    let number = Account::TYPE;
    assert_eq!(renamed::Konto::TYPE, number, "a rename with a declared name keeps the number");
    for other in [renamed::Newer::TYPE, renamed::Swapped::TYPE, renamed::Retyped::TYPE] {
        assert_ne!(other, number);
    }
    let by_hand = TypeNumber::start("Account", 1)
        .field("balance", 0, i64::TYPE)
        .field("next", 8, <Ptr<Account>>::TYPE)
        .field("owner", 16, <[u8; 12]>::TYPE)
        .field("type", 28, u32::TYPE)
        .end();
    assert_eq!(by_hand, number);
}

#[test]
fn numbers_are_the_same_in_every_build() {
    // Stored in pools: a change of the hash would make every object of the wrong type.
    assert_eq!(TypeNumber::BYTES, TypeNumber(GOLDEN[0]));
    assert_eq!(u64::TYPE, TypeNumber(GOLDEN[1]));
    assert_eq!(RawPtr::TYPE, TypeNumber(GOLDEN[2]));
    assert_eq!(<[u8; 12]>::TYPE, TypeNumber(GOLDEN[3]));
    assert_eq!(Account::TYPE, TypeNumber(GOLDEN[4]));
}

/// Computed by hand from the definition of the hash.
const GOLDEN: [u32; 5] = [0x04fa_2344, 0x2fa8_2f6c, 0x02c4_7adf, 0x800b_548e, 0xd7b8_ab5a];

#[test]
fn generic_transparent_structs_depend_on_their_parameter() {
    assert_ne!(Wrapped::<u32>::TYPE, Wrapped::<i32>::TYPE);
    assert_ne!(Block::<4>::TYPE, Block::<5>::TYPE);
    assert_eq!(bytemuck::bytes_of(&Wrapped(0x0102_u16)), &[2, 1]);
    assert_eq!(Block { bytes: [1, 2, 3] }.bytes, [1, 2, 3]);
}

#[test]
fn values_are_bytes_and_back() {
    let account = Account {
        balance: -5,
        next: RawPtr::new(0x40, 1).typed(),
        owner: *b"abcdefghijkl",
        r#type: 9,
    };
    let bytes = bytemuck::bytes_of(&account);
    assert_eq!(bytes.len(), 32);
    assert_eq!(bytemuck::pod_read_unaligned::<Account>(bytes), account);
    assert_eq!(bytemuck::bytes_of(&Packed(1, 2, 0.0)).len(), 13);
    assert_eq!(align_of_val(&Line { words: [0; 8] }), 64);
    assert_ne!(Packed::TYPE, Line::TYPE);
}
